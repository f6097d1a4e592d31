"""The promises of virtual clusters, over drawn sequences of what happens to a pool; each plan is a real decision."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_node
from tests.unit.planner.virtual_clusters.pools import (
    SWITCHES,
    a_pool,
    ended,
    guaranteed,
    reached,
    replan,
    replanned,
    size,
    some_cells,
    submitted,
)
from voda.cells.book import CellBook
from voda.cells.decisions import GangWaits
from voda.cells.gangs import GangRequest
from voda.cells.scheduling import decide
from voda.domain.cells import PhysicalCellSpec
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.recovery import recover

CLUSTERS = ("vision", "speech", "default")
NAMES = ("n1", "n2", "n3", "n4")
QUOTAS: tuple[dict[str, dict[str, int]], ...] = (
    {"vision": {"rack.node": 1}, "speech": {"rack.node": 1}},
    {"vision": {"rack": 1}, "speech": {"rack.node": 1}},
    {"vision": {"rack.node": 1, "rack.node.switch": 1}, "speech": {"rack.node": 1}},
    {"vision": {"rack.node": 2}, "speech": {"rack.node.switch": 3}},
)

PINS = {"vision": "lab"}
"""Only the first quotas have it."""
PHYSICAL = replace(
    SWITCHES,
    physical_cells=(
        SWITCHES.physical_cells[0],
        replace(
            SWITCHES.physical_cells[1],
            cell_children=(
                PhysicalCellSpec(cell_address="n3"),
                PhysicalCellSpec(cell_address="n4", pinned_cell_id="lab"),
            ),
        ),
    ),
)

JOB = st.fixed_dictionaries(
    {
        "cluster": st.sampled_from(CLUSTERS),
        "priority": st.sampled_from((-1, 0, 0, 0, 5)),
        "min_replicas": st.integers(1, 4),
        "more": st.integers(0, 6),
        "gpus_per_replica": st.sampled_from((1, 1, 2, 4)),
        "is_pinned": st.booleans(),
    }
)
STEP = st.one_of(
    st.tuples(st.just("submit"), JOB),
    st.tuples(st.just("submit"), JOB),
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("lose"), st.sampled_from(NAMES)),
    st.tuples(st.just("cordon"), st.sampled_from(NAMES)),
    st.tuples(st.just("mend"), st.sampled_from(NAMES)),
    st.tuples(st.just("apply"), st.sampled_from(QUOTAS)),
    st.tuples(st.just("reach"), st.none()),
)
STEPS = st.lists(STEP, min_size=1, max_size=14)


@dataclass
class Pool:
    """A pool that lives through drawn steps, and what the last one was about."""

    state: ClusterState
    number: int = 0
    concerns: set[str] = field(default_factory=set)
    """Virtual clusters that the last step is about."""

    def take(self, kind: str, value: Any) -> None:
        self.concerns = set()
        if kind == "submit":
            self.number += 1
            fields = {name: value[name] for name in ("priority", "min_replicas", "gpus_per_replica")}
            most = value["min_replicas"] + value["more"]
            if value["is_pinned"] and value["cluster"] in PINS and value["priority"] >= 0:
                fields["pinned_cell"] = PINS[value["cluster"]]
            self.state = submitted(self.state, f"j{self.number}", value["cluster"], max_replicas=most, **fields)
            self.concerns = {value["cluster"]}
        elif kind == "end" and self.state.jobs:
            job_id = sorted(self.state.jobs)[value % len(self.state.jobs)]
            self.concerns = {self.state.jobs[job_id].spec.virtual_cluster}
            self.state = ended(self.state, job_id)
        elif kind in ("lose", "cordon", "mend"):
            changed = {"lose": {"is_draining": True}, "cordon": {"is_schedulable": False}, "mend": {}}[kind]
            self.state = replace(self.state, nodes={**self.state.nodes, value: a_node(value, **changed)})
            self.concerns = set(CLUSTERS)
        elif kind == "apply":
            self.state = replace(self.state, cells=some_cells(value, physical=PHYSICAL, pins=pins_of(value)))
            self.concerns = set(CLUSTERS)
        elif kind == "reach":
            self.state = reached(self.state)


def a_new_pool() -> Pool:
    state = a_pool(QUOTAS[0], nodes=[a_node(name) for name in NAMES])
    return Pool(replace(state, cells=some_cells(QUOTAS[0], physical=PHYSICAL, pins=PINS)))


def pins_of(quotas: dict[str, dict[str, int]]) -> dict[str, str]:
    return PINS if quotas == QUOTAS[0] else {}


def book_of(state: ClusterState) -> CellBook:
    return recover(state, frozenset()).book


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
def test_plan_when_made_holds_whole_minima_only_and_guarantees_lowest_indices(steps: list[Any]) -> None:
    pool = a_new_pool()
    for step in steps:
        pool.take(*step)
        pool.state = replanned(pool.state)
        plan = pool.state.plan
        for job_id, nodes in plan.placement.items():
            spec = pool.state.jobs[job_id].spec
            assert spec.min_replicas <= len(nodes) <= spec.max_replicas
            assert len(plan.devices[job_id]) == len(nodes)
            quotas = plan.guaranteed.get(job_id, ())
            assert not quotas or (all(quotas) and spec.min_replicas <= len(quotas) <= len(nodes))
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
