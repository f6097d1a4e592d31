"""The promises of virtual clusters where jobs share GPUs, over drawn sequences of what happens to a pool."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_node
from tests.unit.planner.virtual_clusters.pools import ended, replan, replanned, some_cells, submitted
from tests.unit.planner.virtual_clusters.sharing_pools import GPU, a_sharing_pool, carried_out, shared
from voda.cells.decisions import GangWaits
from voda.cells.gangs import GangRequest
from voda.cells.pool_cells import declared_cells
from voda.cells.scheduling import decide
from voda.domain.cells import CellsSpec
from voda.domain.gpus import MILLI_PER_DEVICE
from voda.domain.state import ClusterState
from voda.planner.sharing.tenants import owner_of
from voda.planner.virtual_clusters import book_of

CLUSTERS = ("vision", "speech", "default")
NODES = ("n1", "n2")
QUOTAS: tuple[dict[str, dict[str, int]], ...] = (
    {"vision": {"node": 1}, "speech": {"node.gpu": 2}},
    {"vision": {"node.gpu": 3}, "speech": {"node.gpu": 3}},
    {"vision": {"node.gpu": 1}, "speech": {"node": 1}},
)
PRIORITIES = st.sampled_from((-1, -1, 0, 0, 5))
SHARE = st.tuples(
    st.sampled_from(CLUSTERS), PRIORITIES, st.sampled_from((1, 250, 400, 600, 999)), st.sampled_from((0, 4_000, 9_000))
)
WHOLE = st.tuples(st.sampled_from(CLUSTERS), PRIORITIES, st.integers(1, 3), st.integers(0, 4), st.sampled_from((1, 2)))
STEP = st.one_of(
    st.tuples(st.just("share"), SHARE),
    st.tuples(st.just("share"), SHARE),
    st.tuples(st.just("whole"), WHOLE),
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.sampled_from(("cordon", "drain", "mend")), st.sampled_from(NODES)),
    st.tuples(st.just("apply"), st.sampled_from(QUOTAS)),
    st.tuples(st.just("reach"), st.none()),
    st.tuples(st.just("reach"), st.none()),
)
STEPS = st.lists(STEP, min_size=1, max_size=16)
FORCES = ("cordon", "drain", "mend", "apply")
"""Steps after which workers may have to go, whatever guarantees them."""


def taken(state: ClusterState, number: int, kind: str, value: Any) -> ClusterState:
    """Return the state after one step."""
    if kind == "share":
        cluster, priority, milli, memory_mib = value
        return shared(state, f"s{number}", cluster, milli, memory_mib=memory_mib, priority=priority)
    if kind == "whole":
        cluster, priority, least, more, gpus = value
        fields = {"priority": priority, "min_replicas": least, "max_replicas": least + more, "gpus_per_replica": gpus}
        return submitted(state, f"w{number}", cluster, **fields)
    if kind == "end" and state.jobs:
        job_id = sorted(state.jobs)[value % len(state.jobs)]
        left = {job_id: state.jobs[job_id]} if state.jobs[job_id].workers else {}
        return replace(ended(state, job_id), outlived={**state.outlived, **left})
    if kind == "apply":
        return replace(state, cells=_declared(value))
    if kind in FORCES:
        changed = {"cordon": {"is_schedulable": False}, "drain": {"is_draining": True}, "mend": {}}[kind]
        node = a_node(value, devices=(GPU,) * 4, foreign_gpus=state.nodes[value].foreign_gpus, **changed)
        return replace(state, nodes={**state.nodes, value: node})
    return carried_out(state) if kind == "reach" else state


def _declared(quotas: dict[str, dict[str, int]]) -> CellsSpec:
    """Return virtual clusters with the cells of the nodes, as they are recorded: a closed node does not change them."""
    return declared_cells(some_cells(quotas), [a_node(name) for name in NODES])


def plans(steps: list[Any]) -> Iterator[tuple[str, ClusterState, ClusterState]]:
    """Yield each step with the state before it and that of the plan after it."""
    state = replace(a_sharing_pool({}, gpus=dict.fromkeys(NODES, 4)), cells=_declared(QUOTAS[0]))
    for number, (kind, value) in enumerate(steps):
        before, state = state, replanned(taken(state, number, kind, value))
        yield kind, before, state


@settings(max_examples=40)
@given(STEPS)
def test_plan_with_shares_leaves_every_virtual_cluster_the_cells_that_it_is_owed(steps: list[Any]) -> None:
    for _, _, state in plans(steps):
        books = book_of(state).free.values()
        assert all(left >= owed for book in books for left, owed in zip(book.left, book.owed, strict=True))


@settings(max_examples=40)
@given(STEPS)
def test_plan_gives_no_more_of_a_gpu_than_it_has_and_shares_it_in_one_virtual_cluster_alone(steps: list[Any]) -> None:
    for _, _, state in plans(steps):
        milli, memory_mib, owners = Counter[Any](), Counter[Any](), dict[Any, Any]()
        for job_id, nodes in state.plan.placement.items():
            job = state.jobs[job_id]
            request, owner = job.spec.share, owner_of(job) if job.spec.share else job_id
            for gpu in (
                (node, device)
                for node, of_job in zip(nodes, state.plan.devices[job_id], strict=True)
                for device in of_job
            ):
                milli[gpu] += request.milli if request else MILLI_PER_DEVICE
                memory_mib[gpu] += request.memory_mib if request else GPU.memory_mib
                assert owners.setdefault(gpu, owner) == owner
        assert all(count <= MILLI_PER_DEVICE for count in milli.values())
        assert all(count <= GPU.memory_mib for count in memory_mib.values())


@settings(max_examples=40)
@given(STEPS)
def test_share_that_runs_with_a_guarantee_stays_where_it_is_whatever_others_do(steps: list[Any]) -> None:
    for kind, before, state in plans(steps):
        for job_id, quotas in before.plan.guaranteed.items():
            if kind in FORCES or job_id not in state.jobs:
                continue
            job = state.jobs[job_id]
            if job.spec.share is not None and before.jobs[job_id].workers:
                assert state.plan.guaranteed.get(job_id) == quotas
                assert state.plan.placement[job_id] == before.plan.placement[job_id]
                assert state.plan.devices[job_id] == before.plan.devices[job_id]


@settings(max_examples=40)
@given(STEPS)
def test_worker_with_a_guarantee_is_not_taken_for_a_share_of_another_virtual_cluster(steps: list[Any]) -> None:
    for kind, before, state in plans(steps):
        (concerns,) = {job.spec.virtual_cluster for job_id, job in state.jobs.items() if job_id not in before.jobs} or {
            ""
        }
        for job_id, quotas in before.plan.guaranteed.items() if kind == "share" else ():
            if state.jobs[job_id].spec.virtual_cluster != concerns:
                assert len(state.plan.guaranteed.get(job_id, ())) >= len(quotas)
                assert state.plan.placement[job_id][: len(quotas)] == before.plan.placement[job_id][: len(quotas)]


@settings(max_examples=40)
@given(STEPS)
def test_share_waits_only_where_its_virtual_cluster_has_no_cell_for_one_more_gpu(steps: list[Any]) -> None:
    for _, _, state in plans(steps):
        book = book_of(state)
        for job_id, job in state.jobs.items():
            if job.spec.share is not None and job.spec.is_guaranteed and job_id not in state.plan.placement:
                request = GangRequest(name="more", virtual_cluster=job.spec.virtual_cluster, members=((1, 1),))
                assert isinstance(decide(book, request, 1), GangWaits), (job_id, state.plan.reasons[job_id])


@settings(max_examples=30)
@given(STEPS, st.randoms(use_true_random=False))
def test_plan_with_shares_when_the_state_is_read_in_another_order_is_the_same(steps: list[Any], chance: Any) -> None:
    for _, _, state in plans(steps):
        jobs, nodes, shares = list(state.jobs.items()), list(state.nodes.items()), list(state.shares.items())
        placement = list(state.plan.placement.items())
        for each in (jobs, nodes, shares, placement):
            chance.shuffle(each)
        plan = replace(state.plan, placement=dict(placement))
        other = replace(state, jobs=dict(jobs), nodes=dict(nodes), shares=dict(shares), plan=plan)
        assert replan(state) == replan(other)
