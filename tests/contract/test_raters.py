"""What every rater keeps, whatever pods come and go; raters are found by file, so a new one is held to it too."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sharing import a_gpu_node, a_placer, share, whole
from voda.domain.gpus import MILLI_PER_DEVICE, GpuRequest
from voda.sharing.rating.fleet import Fleet
from voda.sharing.rating.nodes import FIRST_DEVICE, GpuNode, Ints
from voda.sharing.rating.pod import PodPlacement, PodRequest
from voda.sharing.rating.raters import RATERS

EXAMPLES = 25


@pytest.fixture(scope="module", params=sorted(RATERS))
def rater(request: pytest.FixtureRequest) -> str:
    return str(request.param)


CONTAINER: st.SearchStrategy[GpuRequest] = st.one_of(
    st.just(GpuRequest()),
    st.builds(whole, st.integers(1, 4)),
    st.builds(share, st.sampled_from([0, 50, 190, 470, 810, 999]), st.sampled_from([0, 1_000, 9_000])),
)
POD: st.SearchStrategy[PodRequest] = st.builds(
    PodRequest,
    cpu_milli=st.sampled_from([0, 3_152, 8_000]),
    memory_mib=st.sampled_from([0, 4_000]),
    containers=st.lists(CONTAINER, max_size=3).map(tuple),
    models=st.sampled_from([(), (), ("A",), ("A", "B")]),
)
NODES: st.SearchStrategy[Sequence[GpuNode]] = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([0, 16_000]), st.sampled_from("AB")), min_size=1, max_size=5
).map(
    lambda shapes: [
        a_gpu_node(f"n{at}", devices, memory_mib=memory, model=model, groups=[(n // 2,) for n in range(devices)])
        for at, (devices, memory, model) in enumerate(shapes)
    ]
)
STEPS: st.SearchStrategy[Sequence[tuple[PodRequest, bool]]] = st.lists(
    st.tuples(POD, st.booleans()), min_size=1, max_size=12
)
"""Pods that come, each with whether the oldest one goes first."""


@settings(max_examples=EXAMPLES)
@given(nodes=NODES, steps=STEPS)
def test_devices_never_give_more_than_they_have_and_get_all_of_it_back(
    rater: str, nodes: Sequence[GpuNode], steps: Sequence[tuple[PodRequest, bool]]
) -> None:
    fleet = Fleet(nodes)
    placer = a_placer(fleet, rater, [pod for pod, _ in steps])
    here: list[PodPlacement] = []
    for number, (pod, goes) in enumerate(steps):
        if goes and here:
            fleet.release(here.pop(0))
        if (chosen := placer.place(pod, f"uid-{number}")) is not None:
            here.append(chosen)
        assert (fleet.free >= 0).all()
        assert (fleet.hardware.total - fleet.free == _sum_of(fleet, here)).all()
    for placement in here:
        fleet.release(placement)
    assert (fleet.free == fleet.hardware.total).all()


@settings(max_examples=EXAMPLES)
@given(nodes=NODES, steps=STEPS)
def test_answers_are_those_of_a_placer_that_keeps_no_scores(
    rater: str, nodes: Sequence[GpuNode], steps: Sequence[tuple[PodRequest, bool]]
) -> None:
    fleet, pods = Fleet(nodes), [pod for pod, _ in steps]
    placer = a_placer(fleet, rater, pods)
    here: list[PodPlacement] = []
    for number, (pod, goes) in enumerate(steps):
        if goes and here:
            fleet.release(here.pop(0))
        assert placer.choose(pod, f"uid-{number}") == a_placer(fleet, rater, pods).choose(pod, f"uid-{number}")
        if (chosen := placer.place(pod, f"uid-{number}")) is not None:
            here.append(chosen)


@settings(max_examples=EXAMPLES)
@given(nodes=NODES, pods=st.lists(POD, min_size=1, max_size=5), data=st.data())
def test_scores_do_not_depend_on_the_order_of_nodes(
    rater: str, nodes: Sequence[GpuNode], pods: Sequence[PodRequest], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(nodes))))
    fleet, other = Fleet(nodes), Fleet([nodes[place] for place in order])
    placer, other_placer = a_placer(fleet, rater, pods), a_placer(other, rater, pods)
    for number, pod in enumerate(pods):
        scores, others = (each.rated(pod, f"uid-{number}").scores for each in (placer, other_placer))
        assert np.array_equal(scores[order], others)
        if (chosen := placer.choose(pod, f"uid-{number}")) is not None:
            fleet.take(chosen)
            other.take(chosen)


@settings(max_examples=EXAMPLES)
@given(nodes=NODES, pod=POD)
def test_a_pod_of_one_container_is_placed_wherever_it_fits(
    rater: str, nodes: Sequence[GpuNode], pod: PodRequest
) -> None:
    single = PodRequest(cpu_milli=pod.cpu_milli, containers=pod.containers[:1], models=pod.models)
    asked = single.containers[0] if single.containers else GpuRequest()
    fits = any(
        len(node.devices) >= asked.count
        and (not asked.memory_mib or node.devices[0].memory_mib >= asked.memory_mib)
        and (not single.models or node.model in single.models)
        for node in nodes
    )
    assert (a_placer(Fleet(nodes), rater, [pod]).choose(single, "uid") is not None) == fits


def _sum_of(fleet: Fleet, placements: Sequence[PodPlacement]) -> Ints:
    """Return what placements take, added up one by one."""
    taken = np.zeros_like(fleet.free)
    width = fleet.hardware.device_memory.shape[1]
    for placement in placements:
        row = fleet.row_of[placement.node]
        taken[row, :FIRST_DEVICE] += (placement.request.cpu_milli, placement.request.memory_mib)
        for container, devices in zip(placement.request.containers, placement.devices, strict=True):
            assert len(devices) == container.count
            for device in devices:
                memory = fleet.hardware.nodes[row].devices[device].memory_mib
                taken[row, FIRST_DEVICE + device] += MILLI_PER_DEVICE if container.devices else container.milli
                taken[row, FIRST_DEVICE + width + device] += memory if container.devices else container.memory_mib
    return taken
