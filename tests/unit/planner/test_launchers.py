"""Launchers that ask for GPUs: plans say where they go, leave room for them there, and give it to nobody."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import said
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.domain.state import ClusterState, Estimate
from voda.placement import PLACERS
from voda.planner.plan_changes import changes
from voda.policies import POLICIES
from voda.projections.cluster.pool_changes import adopted

ONE = Gpus(1)


def decided(view: ClusterState, policy: str = "elastic-fifo") -> Plan:
    return decide(view, POLICIES[policy], PLACERS["steady"], 0.0, cause="tick")


def an_mpijob(job_id: str = "mpi", **fields: Any) -> Job:
    return a_job(job_id, **{"min_replicas": 2, "max_replicas": 32, "launcher_gpus": ONE, **fields})


def nodes(*, launcher_on: str = "", job: str = "mpi") -> list[Node]:
    """Return four nodes of eight GPUs, of which a launcher may have one."""
    return [
        a_node(name, gpus=8, foreign_gpus=1, launchers=(job,)) if name == launcher_on else a_node(name, gpus=8)
        for name in ("n1", "n2", "n3", "n4")
    ]


def with_workers(job: Job, placed: tuple[str, ...]) -> Job:
    return replace(job, workers=dict(enumerate(placed)))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_workers_leave_room_for_their_launcher_under_every_policy(policy: str) -> None:
    rigid = an_mpijob(min_replicas=32, max_replicas=32)
    assert decided(a_state(jobs=[rigid], nodes=nodes()), policy).placement == {}
    plan = decided(a_state(jobs=[an_mpijob(requested_replicas=32)], nodes=nodes()), policy)
    assert len(plan.placement.get("mpi", ())) == (0 if policy in ("fifo", "srjf", "tiresias") else 31)
    fits = an_mpijob(min_replicas=31, max_replicas=31)
    plan = decided(a_state(jobs=[fits], nodes=nodes()), policy)
    assert len(plan.placement["mpi"]) == 31
    assert said(plan.reasons["mpi"]).startswith("starts with 31 workers")


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_is_believed_of_a_job_at_its_maximum_has_a_place_for_its_launcher_too(policy: str) -> None:
    apart = ("n1", "n2")
    job = with_workers(an_mpijob(max_replicas=2), apart)
    known = Estimate(speedup=(0.0, 1.0, 1.8), remaining_s=1e6, span_penalty=0.5)
    view = a_state(jobs=[job], nodes=nodes(), placement={"mpi": apart}, estimates={"mpi": known})
    plan = decided(view, policy)
    assert len(plan.placement["mpi"]) == 2
    assert len({*plan.placement["mpi"], plan.launchers["mpi"]}) == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "needs 5 GPUs, 4 are free; the place of one worker is for its launcher"),
        (
            {"gpus_per_replica": 2},
            "needs room for 5 workers of 2 GPUs, and the nodes have room for 2; the place of one worker is for its"
            " launcher",
        ),
    ],
)
def test_job_that_waits_names_its_launcher(fields: dict[str, Any], why: str) -> None:
    mpi = an_mpijob(min_replicas=4, max_replicas=4, **fields)
    plan = decided(a_state(jobs=[mpi], nodes=[a_node("n1", gpus=4)]))
    assert said(plan.reasons["mpi"]) == f"waits: {why}"


def test_plan_while_the_launcher_waits_stays_as_it_is_and_gives_its_place_to_nobody() -> None:
    mpi, other = an_mpijob(), a_job("other", submitted_at=9.0)
    first = decided(a_state(jobs=[mpi], nodes=nodes())).placement["mpi"]
    view = a_state(jobs=[with_workers(mpi, first)], nodes=nodes(), placement={"mpi": first})
    assert decided(view).placement == {"mpi": first}
    more = decided(replace(view, jobs={**view.jobs, "other": other}))
    assert {job_id: len(each) for job_id, each in more.placement.items()} == {"mpi": 30, "other": 1}


@pytest.mark.parametrize("placer", sorted(PLACERS))
def test_plan_names_the_node_of_a_launcher_and_keeps_it_there(placer: str) -> None:
    def planned(view: ClusterState) -> ClusterState:
        plan = decide(view, POLICIES["elastic-fifo"], PLACERS[placer], 0.0, cause="tick")
        fact = changes(view.plan, plan, view.jobs.keys())
        return view if fact is None else replace(view, plan=adopted(view.plan, fact, 0.0))

    view = planned(a_state(jobs=[an_mpijob()], nodes=nodes()))
    placed, node = view.plan.placement["mpi"], view.plan.launchers["mpi"]
    assert (len(placed), placed.count(node)) == (31, 7)
    at_work = replace(view, jobs={"mpi": with_workers(an_mpijob(), placed)})
    assert planned(at_work).plan.launchers == {"mpi": node}
    bound = replace(at_work, nodes={each.name: each for each in nodes(launcher_on=node)})
    assert planned(bound).plan.launchers == {"mpi": node}
    shrunk = planned(replace(at_work, jobs={**at_work.jobs, "other": a_job("other", gpus_per_replica=8, priority=1)}))
    assert len(shrunk.plan.placement["mpi"]) == 23
    used = Counter([*shrunk.plan.placement["mpi"], shrunk.plan.launchers["mpi"]])
    assert max(used.values()) == 8
    ended = planned(replace(at_work, jobs={}))
    assert ended.plan.launchers == {}


def test_plan_once_the_launcher_is_bound_counts_its_gpu_where_it_is() -> None:
    mpi = an_mpijob()
    first = decided(a_state(jobs=[mpi], nodes=nodes())).placement["mpi"]
    bound_on = next(node for node in ("n1", "n2", "n3", "n4") if first.count(node) == 8)
    view = a_state(jobs=[with_workers(mpi, first)], nodes=nodes(launcher_on=bound_on), placement={"mpi": first})
    plan = decided(view)
    assert len(plan.placement["mpi"]) == 31
    assert plan.placement["mpi"].count(bound_on) == 7
    assert sum(one != other for one, other in zip(plan.placement["mpi"], first, strict=True)) == 1


def test_plan_of_a_job_that_took_all_gpus_gives_one_back_for_the_launcher() -> None:
    placed = tuple(f"n{1 + index // 8}" for index in range(32))
    view = a_state(jobs=[with_workers(an_mpijob(), placed)], nodes=nodes(), placement={"mpi": placed})
    plan = decided(view)
    assert plan.placement["mpi"] == placed[:31]
    assert said(plan.reasons["mpi"]).startswith("shrunk from 32 to 31 workers")


def test_job_of_higher_priority_gets_the_gpus_of_a_launcher_whose_job_it_preempts() -> None:
    mpi = with_workers(an_mpijob(min_replicas=1, max_replicas=7), ("n1",) * 7)
    one = [a_node("n1", gpus=8, foreign_gpus=1, launchers=("mpi",))]
    urgent = a_job("urgent", gpus_per_replica=8, priority=9, submitted_at=9.0)
    view = a_state(jobs=[mpi, urgent], nodes=one, placement={"mpi": ("n1",) * 7})
    plan = decided(view)
    assert plan.placement == {"urgent": ("n1",)}
    # While the launcher has not left yet, the plan stays.
    after = replace(view, plan=plan, jobs={"mpi": mpi, "urgent": urgent})
    assert decided(after).placement == {"urgent": ("n1",)}
    small = replace(urgent, spec=replace(urgent.spec, gpus_per_replica=Gpus(5)))
    kept = decided(replace(view, jobs={"mpi": mpi, "urgent": small}))
    assert {job_id: len(each) for job_id, each in kept.placement.items()} == {"urgent": 1, "mpi": 2}


def test_job_of_lower_priority_does_not_get_the_gpus_of_a_launcher() -> None:
    mpi = with_workers(an_mpijob(min_replicas=1, max_replicas=7), ("n1",) * 7)
    one = [a_node("n1", gpus=8, foreign_gpus=1, launchers=("mpi",))]
    low = a_job("low", gpus_per_replica=8, submitted_at=9.0, priority=-1)
    view = a_state(jobs=[mpi, low], nodes=one, placement={"mpi": ("n1",) * 7})
    assert decided(view).placement == {"mpi": ("n1",) * 7}


@pytest.mark.parametrize("placer", sorted(PLACERS))
def test_launcher_that_is_to_be_made_anew_goes_to_no_cordoned_node(placer: str) -> None:
    at = ("n1",) * 3
    mpi = with_workers(an_mpijob(max_replicas=3, requested_replicas=3), at)
    cordoned, full = a_node("n1", gpus=8, is_schedulable=False), a_node("n2", gpus=8, foreign_gpus=8)
    for others, launchers in (([full], {}), ([a_node("n2", gpus=8)], {"mpi": "n2"})):
        view = a_state(jobs=[mpi], nodes=[cordoned, *others], placement={"mpi": at})
        view = replace(view, plan=replace(view.plan, launchers={"mpi": "n1"}))
        plan = decide(view, POLICIES["elastic-fifo"], PLACERS[placer], 0.0, cause="tick")
        assert plan.launchers == launchers
        assert plan.placement == {"mpi": at[: 3 if launchers else 2]}
