"""What a machine makes of plans with shared GPUs, whatever is slow and whatever comes in between."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.planner.virtual_clusters.pools import ended, some_cells, submitted
from tests.unit.planner.virtual_clusters.sharing_machine import SharingMachine, a_sharing_machine
from tests.unit.planner.virtual_clusters.sharing_pools import GPU, shared
from voda.domain.gpus import MILLI_PER_DEVICE
from voda.planner.sharing.tenants import owner_of

CLUSTERS = ("vision", "speech")
QUOTAS: tuple[dict[str, dict[str, int]], ...] = (
    {"vision": {"node.gpu": 2}, "speech": {"node.gpu": 2}},
    {"vision": {"node.gpu": 3}, "speech": {"node.gpu": 1}},
)
PRIORITIES = st.sampled_from((-1, 0, 0, 3))
SHARE = st.tuples(st.sampled_from(CLUSTERS), PRIORITIES, st.sampled_from((100, 300, 500, 700)))
WHOLE = st.tuples(st.sampled_from(CLUSTERS), PRIORITIES, st.integers(1, 2), st.integers(0, 3))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("share"), SHARE),
        st.tuples(st.just("share"), SHARE),
        st.tuples(st.just("whole"), WHOLE),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("plan"), st.none()),
        st.tuples(st.just("act"), st.integers(0, 3)),
        st.tuples(st.just("act"), st.integers(0, 3)),
        st.tuples(st.just("leave"), st.none()),
        st.tuples(st.just("apply"), st.sampled_from(QUOTAS)),
    ),
    min_size=4,
    max_size=30,
)


def take(machine: SharingMachine, number: int, kind: str, value: Any) -> None:
    state = machine.state
    if kind == "share":
        cluster, priority, milli = value
        machine.state = shared(state, f"s{number}", cluster, milli, memory_mib=10 * milli, priority=priority)
    elif kind == "whole":
        cluster, priority, least, more = value
        fields = {"priority": priority, "min_replicas": least, "max_replicas": least + more}
        machine.state = submitted(state, f"w{number}", cluster, **fields)
    elif kind == "end" and state.jobs:
        job_id = sorted(state.jobs)[value % len(state.jobs)]
        left = {job_id: state.jobs[job_id]} if state.jobs[job_id].workers else {}
        machine.state = replace(ended(state, job_id), outlived={**state.outlived, **left})
    elif kind == "apply":
        machine.state = replace(state, cells=some_cells(value))
    elif kind == "plan":
        machine.plan()
    elif kind == "leave":
        machine.leave()
    elif kind == "act":
        for action in machine.actions()[value : value + 2]:
            machine.act(action)


def machines(steps: list[Any]) -> Iterator[SharingMachine]:
    """Yield the machine after each step, and once it has settled."""
    machine = a_sharing_machine(QUOTAS[0])
    for number, (kind, value) in enumerate(steps):
        take(machine, number, kind, value)
        yield machine
    machine.settle()
    yield machine


@settings(max_examples=60)
@given(STEPS)
def test_machine_shares_a_gpu_in_one_virtual_cluster_alone_and_gives_no_more_than_it_has(steps: list[Any]) -> None:
    for machine in machines(steps):
        jobs = {**machine.state.outlived, **machine.state.jobs}
        for job_ids in machine.gpus().values():
            assert len({owner_of(jobs[job_id]) for job_id in job_ids}) == 1
            requests = [share for job_id in job_ids if (share := jobs[job_id].spec.share) is not None]
            assert sum(request.milli for request in requests) <= MILLI_PER_DEVICE
            assert sum(request.memory_mib for request in requests) <= GPU.memory_mib
        whole = sum(len(names) for of_job in machine.held.values() for names in of_job.values())
        assert whole + len(machine.gpus()) <= 4


@settings(max_examples=60)
@given(STEPS)
def test_machine_that_is_left_alone_comes_to_have_what_is_planned_each_gpu_as_one_cell(steps: list[Any]) -> None:
    *_, machine = machines(steps)
    plan = machine.state.plan
    assert {job_id: len(nodes) for job_id, nodes in plan.placement.items()} == {
        job_id: len(of_job) for job_id, of_job in machine.held.items()
    }
    planned: dict[Any, set[str]] = {}
    for job_id in plan.placement:
        if machine.state.jobs[job_id].spec.share is not None:
            planned.setdefault(plan.devices[job_id], set()).add(job_id)
    assert sorted(map(sorted, planned.values())) == sorted(map(sorted, machine.gpus().values()))
