"""Jobs that run at some sizes only: no plan gives them another one, whoever allocates, places and caps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.views import at_sizes, sized_views, with_priorities
from voda.domain.plan import Plan
from voda.domain.reasons.nodes import Said
from voda.domain.settings import Settings
from voda.domain.sizes import JobSizes
from voda.domain.state import ClusterState, Estimate
from voda.placement import PLACERS
from voda.planner.registries import Registries
from voda.policies import POLICIES, Policy
from voda.timetravel.explanation import explain_live

POWERS = JobSizes.of([1, 2, 4, 8])
EVERY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
NODES = st.lists(st.integers(0, 8), min_size=1, max_size=5)


@st.composite
def pools(draw: st.DrawFn) -> ClusterState:
    """Return a pool of such jobs: anything in force, priorities, users' turns, costs, and nodes that refuse jobs."""
    nodes = {f"n{place}": a_node(f"n{place}", gpus=count) for place, count in enumerate(draw(NODES))}
    view = with_priorities(draw(sized_views()), draw(st.lists(st.integers(0, 1), max_size=7)))
    somewhere = st.lists(st.sampled_from([*nodes]), max_size=6).map(tuple)
    in_force = {job_id: at for job_id in view.jobs if (at := draw(somewhere))}
    cost_s = draw(st.sampled_from([0.0, 1e4]))
    jobs = {}
    for job_id, job in view.jobs.items():
        refused = draw(st.sets(st.sampled_from([*nodes]), max_size=2)) if draw(st.booleans()) else ()
        jobs[job_id] = replace(
            job,
            spec=replace(job.spec, user=draw(st.sampled_from(["ann", "bob"]))),
            workers=dict(enumerate(in_force.get(job_id, ()))),
            refusals={name: Said(text="full") for name in sorted(refused)},
            fits={name: draw(st.integers(1, 4)) for name in sorted(refused) if draw(st.booleans())},
        )
    known = {
        job_id: replace(each, resize_cost_s=cost_s)
        for job_id, each in view.estimates.items()
        if len(each.speedup) > jobs[job_id].spec.max_replicas
    }
    rules = Settings(fair_share=draw(st.sampled_from(["", "", "users"])))
    return a_state(jobs=jobs.values(), nodes=nodes.values(), placement=in_force, estimates=known, settings=rules)


def assert_keeps_to_sizes(view: ClusterState, plan: Plan) -> None:
    for job_id, nodes in plan.placement.items():
        assert view.jobs[job_id].spec.size_within(len(nodes)) == len(nodes)
    assert min(view.free_gpus(plan.placement).values()) >= 0


@settings(max_examples=60)
@given(pools())
def test_plans_when_jobs_run_at_some_sizes_only_give_them_these_whatever_was_in_force(pool: ClusterState) -> None:
    for policy in POLICIES.values():
        for placer in PLACERS.values():
            state = pool
            for now in (0.0, 60.0):
                plan = decide(state, policy, placer, now, cause="tick")
                assert_keeps_to_sizes(state, plan)
                state = replace(state, plan=plan)


@EVERY
def test_gpus_when_a_size_leaves_some_over_are_for_jobs_that_can_use_them(policy: Policy) -> None:
    jobs = [a_job("a", max_replicas=8), a_job("b", max_replicas=3, submitted_at=1.0)]
    jobs[0] = replace(jobs[0], spec=at_sizes(jobs[0].spec, POWERS))
    view = a_state(jobs=jobs, nodes=[a_node("n1", gpus=7)], settings=Settings(policy=policy.name))
    replicas = POLICIES[policy.name].allocate(view, 0.0).replicas
    if not getattr(policy, "gives_as_requested", False):
        assert replicas == {"a": 4, "b": 3}


def test_job_when_scattered_gpus_fit_a_part_of_its_size_has_the_size_below_and_others_the_rest() -> None:
    wide = a_job("wide", max_replicas=4, gpus_per_replica=2, requested_replicas=4)
    wide = replace(wide, spec=at_sizes(wide.spec, JobSizes.of([2, 4])))
    small = a_job("small", max_replicas=2, submitted_at=1.0)
    nodes = [a_node("n1", gpus=3), a_node("n2", gpus=3), a_node("n3", gpus=3)]
    view = a_state(jobs=[wide, small], nodes=nodes)
    for placer in PLACERS.values():
        placed = placer.place(view, {"wide": 4, "small": 2}, 0.0)
        assert {job_id: len(at) for job_id, at in placed.items()} == {"wide": 2, "small": 2}
        plan = decide(view, POLICIES["elastic-fifo"], placer, 0.0, cause="tick")
        assert {job_id: len(at) for job_id, at in plan.placement.items()} == {"wide": 2, "small": 2}


def test_growth_when_it_does_not_pay_leaves_no_job_at_a_size_at_which_it_no_longer_runs() -> None:
    job = a_job("a", max_replicas=8, workers=dict.fromkeys(range(3), "n1"))
    job = replace(job, spec=at_sizes(job.spec, POWERS))
    estimate = Estimate(speedup=tuple(map(float, range(9))), remaining_s=10.0, resize_cost_s=600.0)
    view = a_state(jobs=[job], nodes=[a_node("n1", gpus=4)], placement={"a": ("n1",) * 3}, estimates={"a": estimate})
    plan = decide(view, POLICIES["elastic-fifo"], PLACERS["steady"], 0.0, cause="tick")
    assert len(plan.placement["a"]) == 4


def test_explanation_of_a_job_whose_next_size_does_not_fit_says_what_it_takes() -> None:
    job = a_job("a", max_replicas=8, workers=dict.fromkeys(range(4), "n1"))
    job = replace(job, spec=at_sizes(job.spec, POWERS))
    state = a_state(jobs=[job], nodes=[a_node("n1", gpus=7)], placement={"a": ("n1",) * 4})

    def suggestions(state: ClusterState) -> tuple[str, ...]:
        decider = Registries().decider(state, cause="test")
        return explain_live(state, "a", 1.0, policies=POLICIES, decide=decider).suggestions

    assert suggestions(state) == ("its next size is 8: that takes 4 GPUs more, and 3 are free",)
    assert suggestions(replace(state, nodes={"n1": a_node("n1", gpus=4)})) == ()
    rigid = replace(state, settings=Settings(policy="fifo"))
    assert suggestions(rigid) == (), "its policy gives it what it requests"
    once = replace(job, spec=replace(job.spec, is_restartable=False, requested_replicas=4))
    assert suggestions(replace(state, jobs={"a": once})) == (), "nothing grows it"
    waiting = replace(job, workers={}, spec=replace(job.spec, min_replicas=8, requested_replicas=8))
    state = replace(state, jobs={"a": waiting}, plan=replace(state.plan, placement={}))
    assert "would start at once with min 4" in suggestions(state)
