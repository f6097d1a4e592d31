"""Users take turns, where the pool says so: who gets how many GPUs, what others are told, and what is remembered."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import Log, a_job, a_node, a_spec, a_state
from tests.decisions import decide
from tests.reasons import said
from tests.views import views
from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.plan import Plan
from voda.domain.settings import Settings, checked_fair_share, user_weights
from voda.domain.state import ClusterState, UserService, mean_life
from voda.events.types import (
    AnyFact,
    JobCompleted,
    JobSubmitted,
    NodeJoined,
    SettingsChanged,
    WorkerExited,
    WorkerStarted,
)
from voda.placement import PLACERS
from voda.planner.allocation.priority import allocate
from voda.policies import POLICIES
from voda.projections.cluster.pool_changes import charge_user
from voda.projections.live import Live

HALF_LIFE_S = 86_400.0
USERS = Settings(fair_share="users")


def a_view(
    *jobs: Job,
    gpus: int = 4,
    placement: Mapping[str, tuple[str, ...]] | None = None,
    had: Mapping[str, float] | None = None,
    fair_share: str = "users",
) -> ClusterState:
    """Return a view in which users have had so many GPUs lately, in the mean."""
    view = a_state(
        jobs=jobs, nodes=[a_node("n1", gpus=gpus)], placement=placement, settings=Settings(fair_share=fair_share)
    )
    gpu_s = {user: each * mean_life(HALF_LIFE_S) for user, each in (had or {}).items()}
    return replace(view, service={user: UserService(each) for user, each in gpu_s.items()})


def of_user(user: str, jobs: int, *, submitted_at: float = 0.0, **fields: int) -> list[Job]:
    return [a_job(f"{user}-{n}", user=user, submitted_at=submitted_at + n, **fields) for n in range(jobs)]


def decided(view: ClusterState, policy: str = "fifo") -> Plan:
    return decide(view, POLICIES[policy], PLACERS["steady"], 0.0, cause="tick")


def test_job_of_another_user_when_one_floods_the_queue_does_not_wait_for_all_of_them() -> None:
    ann, bob = of_user("ann", 8), of_user("bob", 1, submitted_at=100.0)
    running = {job.spec.job_id: ("n1",) for job in ann[:4]}
    at_work = [replace(job, workers={0: "n1"}) if job.spec.job_id in running else job for job in ann]
    plan = decided(a_view(*at_work, *bob, placement=running, had={"ann": 0.5}))
    assert plan.replicas == {"ann-0": 1, "ann-1": 1, "ann-2": 1, "bob-0": 1}
    assert said(plan.reasons["ann-3"]) == (
        "preempted by job bob-0 of bob: 2 users take turns, this one had 0.5 GPUs lately and has 3 now; "
        "needs 1 GPU, none is free"
    )
    assert said(plan.reasons["bob-0"]) == (
        "starts with 1 worker: 2 users take turns, this one had 0 GPUs lately and has 1 now; as requested"
    )
    assert "bob-0" not in decided(a_view(*at_work, *bob, placement=running, fair_share="")).replicas


def test_users_with_equal_pasts_have_equally_many_gpus_by_rigid_and_elastic_policies() -> None:
    rigid = decided(a_view(*of_user("ann", 9), *of_user("bob", 9, submitted_at=50.0), gpus=8)).replicas
    assert sum(size for job_id, size in rigid.items() if job_id.startswith("bob")) == 4
    jobs = (*of_user("ann", 1, max_replicas=16), *of_user("bob", 1, submitted_at=50.0, max_replicas=16))
    assert decided(a_view(*jobs, gpus=8), "elastic-fifo").replicas == {"ann-0": 4, "bob-0": 4}


def test_weights_divide_the_gpus() -> None:
    jobs = (*of_user("ann", 9), *of_user("bob", 9), *of_user("eve", 9))
    plan = decided(a_view(*jobs, gpus=8, fair_share="ann=2"))
    counts = {user: sum(size for job_id, size in plan.replicas.items() if user in job_id) for user in ("ann", "bob")}
    assert counts == {"ann": 4, "bob": 2}


def test_minimum_of_a_user_who_had_nothing_goes_before_the_surplus_of_others() -> None:
    jobs = (*of_user("ann", 2, max_replicas=8), *of_user("bob", 1, submitted_at=9.0, min_replicas=4, max_replicas=4))
    plan = decided(a_view(*jobs, gpus=6, had={"ann": 6.0}), "elastic-fifo")
    assert plan.replicas == {"ann-0": 1, "ann-1": 1, "bob-0": 4}


def test_large_job_gets_its_turn_also_where_it_is_more_than_half_of_the_gpus() -> None:
    ann, bob = of_user("ann", 8), of_user("bob", 1, submitted_at=9.0, min_replicas=6, max_replicas=6)
    plan = decided(a_view(*ann, *bob, gpus=8, had={"ann": 0.1}))
    assert plan.replicas == {"bob-0": 6, "ann-0": 1, "ann-1": 1}


def test_gpus_that_a_user_cannot_use_are_for_the_others() -> None:
    large = a_job("bob-0", user="bob", min_replicas=9, max_replicas=9)
    assert decided(a_view(*of_user("ann", 9), large, gpus=8)).replicas.keys() == {f"ann-{n}" for n in range(8)}


def test_turns_when_what_users_had_is_nearly_the_same_do_not_change_by_each_event() -> None:
    jobs = (*of_user("ann", 3), *of_user("bob", 3))
    placed = {"ann-0": ("n1",), "ann-1": ("n1",), "bob-0": ("n1",)}
    at_work = [replace(job, workers={0: "n1"}) if job.spec.job_id in placed else job for job in jobs]
    had = {"ann": 1.55, "bob": 1.5}
    assert decided(a_view(*at_work, gpus=3, placement=placed, had=had)).placement == placed
    more = decided(a_view(*at_work, gpus=3, placement=placed, had={"ann": 1.9, "bob": 1.5}))
    assert more.replicas == {"ann-0": 1, "bob-0": 1, "bob-1": 1}


def test_higher_priority_goes_before_every_turn() -> None:
    jobs = (*of_user("ann", 4, priority=1), *of_user("bob", 1))
    assert decided(a_view(*jobs, had={"ann": 4.0})).replicas.keys() == {f"ann-{n}" for n in range(4)}


@settings(max_examples=200)
@given(views(), st.lists(st.sampled_from(["ann", "bob", ""]), min_size=7, max_size=7), st.floats(0, 50))
def test_answer_keeps_what_policies_keep(view: ClusterState, users: list[str], had: float) -> None:
    named = {
        job_id: replace(job, spec=replace(job.spec, user=user))
        for (job_id, job), user in zip(view.jobs.items(), users, strict=False)
    }
    service = {"ann": UserService(had * mean_life(HALF_LIFE_S))}
    fair = replace(view, jobs=named, service=service, settings=replace(view.settings, fair_share="users"))
    for policy in POLICIES.values():
        answer = allocate(fair, policy, 0.0)
        assert answer.replicas.keys() == {job_id for job_id, job in view.jobs.items() if not job.is_canceling}
        assert answer.reasons.keys() >= answer.replicas.keys()
        held = sum(size * view.jobs[job_id].spec.gpus_per_replica for job_id, size in answer.replicas.items())
        assert held <= view.capacity_gpus
        for job_id, size in answer.replicas.items():
            spec = view.jobs[job_id].spec
            assert size == 0 or spec.min_replicas <= size <= spec.max_replicas
        alone = replace(fair, jobs={job_id: job for job_id, job in named.items() if job.spec.user == "ann"})
        without = replace(alone, settings=view.settings)
        assert allocate(alone, policy, 0.0).replicas == allocate(without, policy, 0.0).replicas


def folded(*facts: tuple[float, AnyFact]) -> Live:
    log, live = Log(), Live()
    for at, fact in facts:
        live.apply(log.add(fact, at=at))
    return live


def test_service_of_a_user_counts_half_after_each_half_life_and_while_workers_outlive_their_job() -> None:
    live = folded(
        (0, SettingsChanged(pool="default", settings={"fair_share_half_life_s": 3600.0})),
        (0, NodeJoined(node=a_node("n1"))),
        (0, JobSubmitted(spec=a_spec("a", user="ann", gpus_per_replica=2))),
        (0, WorkerStarted(job_id="a", workers={0: "n1"})),
        (3600, JobCompleted(job_id="a")),
        (7200, WorkerExited(job_id="a", workers=(0,), cause="finished")),
    )
    service = live.cluster.state("default").service["ann"]
    assert (service.gpus, service.at) == (0, 7200.0)
    assert service.gpu_s == pytest.approx(2 * mean_life(3600.0) * 0.75)
    assert service.by(10_800.0, 3600.0).gpu_s == pytest.approx(mean_life(3600.0) * 0.75)
    assert live.cluster.state("default").service == _reloaded(live).cluster.state("default").service


def _reloaded(live: Live) -> Live:
    copy = Live()
    copy.load(live.dump())
    return copy


def test_other_half_life_counts_from_its_change_on() -> None:
    live = folded(
        (0, NodeJoined(node=a_node("n1"))),
        (0, JobSubmitted(spec=a_spec("a", user="ann"))),
        (0, WorkerStarted(job_id="a", workers={0: "n1"})),
        (HALF_LIFE_S, SettingsChanged(pool="default", settings={"fair_share_half_life_s": 60.0})),
    )
    service = live.cluster.state("default").service["ann"]
    assert service.gpu_s == pytest.approx(mean_life(HALF_LIFE_S) / 2)
    assert service.by(HALF_LIFE_S + 600.0, 60.0).gpu_s < 0.002 * mean_life(HALF_LIFE_S)


def test_users_without_service_are_forgotten_though_another_never_stops() -> None:
    services: dict[str, UserService] = {}
    charge_user(services, "always", 8, 0.0, 60.0)
    for number in range(5_000):
        charge_user(services, f"u{number}", 1, number * 30.0, 60.0)
        charge_user(services, f"u{number}", -1, number * 30.0 + 20.0, 60.0)
    assert len(services) < 50
    assert services["always"].gpus == 8


@given(st.lists(st.tuples(st.floats(0, 1e5), st.integers(0, 64)), max_size=12))
def test_service_folded_in_steps_is_that_of_one_look(steps: list[tuple[float, int]]) -> None:
    once = UserService(gpus=Gpus(3))
    now = 0.0
    for span_s, _ in steps:
        now += span_s
        once = once.by(now, HALF_LIFE_S)
    assert once.gpu_s == pytest.approx(UserService(gpus=Gpus(3)).by(now, HALF_LIFE_S).gpu_s)


@pytest.mark.parametrize("text", ["user", "ann", "ann=0", "ann=-1", "ann=nan", "ann=inf", "ann=2,ann=1", "=2", ","])
def test_setting_that_means_nothing_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^fair_share: expected 'users', or one USER=WEIGHT .*, got '"):
        user_weights(text)


@pytest.mark.parametrize(
    "text", ["an\x00n=2", "ann\x1b[2J=2", "ann =2", "ann=\u0663", "ann=0.0009", "bob=2,ann=1e-300"]
)
def test_names_and_weights_that_mean_nothing_are_refused_where_they_are_given_and_read_from_a_log(text: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"^fair_share: expected names without control characters and weights from 0.00"
    ):
        checked_fair_share(text)
    assert user_weights(text)


@pytest.mark.parametrize("text", ["", "users", "ann=0.001", " ann=1000 , b\u00f6b=1e1"])
def test_names_and_weights_that_mean_something_are_taken(text: str) -> None:
    assert checked_fair_share(text) == text
