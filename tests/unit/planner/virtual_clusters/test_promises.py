"""The promises of virtual clusters, over drawn sequences of what happens to a pool; each plan is a real decision."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_node
from tests.unit.planner.virtual_clusters.drawn import CLUSTERS, NAMES, STEPS, a_new_pool
from tests.unit.planner.virtual_clusters.pools import (
    a_pool,
    ended,
    guaranteed,
    reached,
    replan,
    replanned,
    size,
    submitted,
)
from voda.cells.book import CellBook
from voda.cells.decisions import GangWaits
from voda.cells.gangs import GangRequest
from voda.cells.scheduling import decide
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.cell_draft import CellDraft, job_of
from voda.planner.virtual_clusters.pool_jobs import quota_of
from voda.planner.virtual_clusters.recovery import recover


def book_of(state: ClusterState) -> CellBook:
    return recover(state).book


@settings(max_examples=30)
@given(STEPS)
def test_plan_when_anything_happens_leaves_every_virtual_cluster_the_cells_that_it_is_owed(steps: list[Any]) -> None:
    pool = a_new_pool()
    for step in steps:
        pool.take(*step)
        pool.state = replanned(pool.state)
        books = book_of(pool.state).free.values()
        assert all(left >= owed for book in books for left, owed in zip(book.left, book.owed, strict=True))


@settings(max_examples=30)
@given(STEPS)
def test_plan_when_the_cells_of_a_guaranteed_gang_are_free_has_it(steps: list[Any]) -> None:
    pool = a_new_pool()
    for step in steps:
        pool.take(*step)
        pool.state = replanned(pool.state)
        book = book_of(pool.state)
        for job_id, job in pool.state.jobs.items():
            spec = job.spec
            if spec.pinned_cell and (spec.virtual_cluster, spec.pinned_cell) not in book.quotas.pin_views:
                assert not size(pool.state, job_id)
            elif spec.priority >= 0 and not size(pool.state, job_id):
                request = GangRequest(
                    name=f"{job_id} again",
                    virtual_cluster=spec.virtual_cluster,
                    members=((spec.min_replicas, spec.gpus_per_replica),),
                    pin=spec.pinned_cell,
                )
                assert isinstance(decide(book, request, spec.gpus_per_replica), GangWaits), (job_id, steps)


@settings(max_examples=30)
@given(STEPS)
def test_plan_when_another_virtual_cluster_needs_cells_takes_no_guaranteed_worker(steps: list[Any]) -> None:
    pool = a_new_pool()
    for step in steps:
        before = pool.state
        pool.take(*step)
        pool.state = replanned(pool.state)
        for job_id, job in pool.state.jobs.items():
            if job.spec.virtual_cluster not in pool.concerns and job_id in before.plan.guaranteed:
                sure = guaranteed(before, job_id)
                assert guaranteed(pool.state, job_id) >= sure
                assert pool.state.plan.placement[job_id][:sure] == before.plan.placement[job_id][:sure]


@settings(max_examples=30)
@given(STEPS)
def test_plan_when_made_holds_whole_sizes_only_and_guarantees_lowest_indices(steps: list[Any]) -> None:
    pool = a_new_pool()
    for step in steps:
        pool.take(*step)
        pool.state = replanned(pool.state)
        plan = pool.state.plan
        for job_id, nodes in plan.placement.items():
            spec = pool.state.jobs[job_id].spec
            assert spec.size_within(len(nodes)) == len(nodes)
            assert len(plan.devices[job_id]) == len(nodes)
            quotas = plan.guaranteed.get(job_id, ())
            assert all(quotas)
            assert spec.size_within(len(quotas)) == len(quotas) <= len(nodes)
            assert spec.priority >= 0 or not quotas
            assert not spec.pinned_cell or (set(nodes) == {"n4"} and len(quotas) == len(nodes))


@settings(max_examples=30)
@given(STEPS)
def test_plan_when_made_puts_one_worker_on_a_device_and_none_on_a_bad_node(steps: list[Any]) -> None:
    pool = a_new_pool()
    for step in steps:
        pool.take(*step)
        pool.state = replanned(pool.state)
        taken: Counter[tuple[str, int]] = Counter()
        for job_id, nodes in pool.state.plan.placement.items():
            job = pool.state.jobs[job_id]
            for index, (node, devices) in enumerate(zip(nodes, pool.state.plan.devices[job_id], strict=True)):
                assert len(set(devices)) == job.spec.gpus_per_replica
                taken.update((node, device) for device in devices)
                is_cordoned = not pool.state.nodes[node].is_schedulable
                assert pool.state.nodes[node].usable_gpus or (is_cordoned and job.workers.get(index) == node)
        assert all(device in range(4) for _, device in taken)
        assert not taken or max(taken.values()) == 1


@settings(max_examples=30)
@given(STEPS, st.randoms(use_true_random=False))
def test_plan_when_the_state_is_read_in_another_order_is_the_same(steps: list[Any], chance: Any) -> None:
    pool = a_new_pool()
    for step in steps:
        pool.take(*step)
        jobs = list(pool.state.jobs.items())
        nodes = list(pool.state.nodes.items())
        chance.shuffle(jobs)
        chance.shuffle(nodes)
        placement = list(pool.state.plan.placement.items())
        chance.shuffle(placement)
        other = replace(
            pool.state, jobs=dict(jobs), nodes=dict(nodes), plan=replace(pool.state.plan, placement=dict(placement))
        )
        assert replan(pool.state) == replan(other)
        pool.state = replanned(pool.state)


@settings(max_examples=30)
@given(STEPS)
def test_plan_when_decided_again_and_again_settles_soon(steps: list[Any]) -> None:
    pool = a_new_pool()
    for step in steps:
        pool.take(*step)
        pool.state = replanned(pool.state)
    again = replan(replanned(replanned(pool.state)))
    assert again is None or (not again.placed and not again.released)


@settings(max_examples=60)
@given(STEPS)
def test_reconfiguration_when_applied_lets_workers_go_on_and_says_who_lost_its_guarantee(
    steps: list[Any],
) -> None:
    pool = a_new_pool()
    for step in steps:
        before = pool.state
        pool.take(*step)
        if step[0] == "apply":
            was, will_be = recover(before, frozenset()), recover(pool.state)
            assert cells_of(will_be) == cells_of(was)
            named = _downgraded(will_be.book) - _downgraded(was.book)
            sure, left = ({name for name, gang in each.book.gangs.items() if gang.virtual} for each in (was, will_be))
            # Of others nothing is asked again: their pinned cell, or their virtual cluster, is there no longer.
            quotas, jobs = will_be.book.quotas, pool.state.jobs
            assert named == {name for name in sure - left if quota_of(quotas, jobs[job_of(name)].spec) is not None}
            assert book_of(before) == was.book, "a dry run changed something"
        pool.state = replanned(pool.state)


def cells_of(draft: CellDraft) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    return {
        job_id: [(worker.cells.node, worker.cells.devices) for worker in workers]
        for job_id, workers in draft.workers.items()
    }


OWN = {"vision": 2, "speech": 1, "default": 1}
"""Nodes of each virtual cluster, in the shared pool and alone."""
ASKS = st.fixed_dictionaries(
    {"cluster": st.sampled_from(CLUSTERS), "priority": st.sampled_from((-1, 0, 0, 0, 5))}
    | {"min_replicas": st.integers(1, 5), "more": st.integers(0, 6)}
)


@settings(max_examples=60)
@given(st.lists(st.one_of(ASKS, ASKS, st.integers(0, 20)), max_size=16))
def test_job_when_it_would_run_in_a_private_pool_runs_in_the_shared_one(steps: list[Any]) -> None:
    quotas = {name: {"node": number} for name, number in OWN.items()}
    shared = a_pool(quotas, nodes=[a_node(name) for name in NAMES])
    private = {
        name: a_pool({name: quotas[name]}, nodes=[a_node(each) for each in NAMES[:number]])
        for name, number in OWN.items()
    }
    for number, step in enumerate(steps):
        if isinstance(step, dict):
            shared = _submitted(shared, f"j{number}", step)
            if step["priority"] >= 0:
                private[step["cluster"]] = _submitted(private[step["cluster"]], f"j{number}", step)
        elif shared.jobs:
            job_id = sorted(shared.jobs)[step % len(shared.jobs)]
            shared = ended(shared, job_id)
            private = {name: ended(state, job_id) for name, state in private.items()}
        shared = reached(replanned(shared))
        private = {name: reached(replanned(state)) for name, state in private.items()}
        for state in private.values():
            for job_id in state.plan.guaranteed:
                assert size(shared, job_id), f"{job_id} would run in a private pool"


def _downgraded(book: CellBook) -> set[str]:
    return {name for name, gang in book.gangs.items() if gang.downgraded_by}


def _submitted(state: ClusterState, job_id: str, asks: Mapping[str, Any]) -> ClusterState:
    least = asks["min_replicas"]
    fields = {"priority": asks["priority"], "min_replicas": least, "max_replicas": least + asks["more"]}
    return submitted(state, job_id, asks["cluster"], **fields)
