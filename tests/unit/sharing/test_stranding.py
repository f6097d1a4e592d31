"""The loss on nodes, against its definition written out; and how much pods press on models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sharing import a_gpu_node, a_pod, placed, share, whole
from voda.domain.gpus import GpuRequest, Gpus
from voda.sharing.rating.fleet import Fleet
from voda.sharing.rating.nodes import GpuNode
from voda.sharing.rating.pod import PodRequest
from voda.sharing.rating.stranding import FILL_WEIGHT, Stranding

MILLI = st.sampled_from([100, 250, 500, 810])
CONTAINER = st.one_of(st.builds(whole, st.integers(1, 3)), st.builds(share, MILLI))
POD = st.builds(
    PodRequest,
    cpu_milli=st.sampled_from([0, 1_000, 3_000]),
    memory_mib=st.sampled_from([0, 1_000, 30_000]),
    containers=CONTAINER.map(lambda container: (container,)),
    models=st.sampled_from([(), ("A",), ("B",), ("A", "B")]),
)


@given(
    pods=st.dictionaries(POD, st.integers(1, 5), min_size=1, max_size=6),
    used=st.lists(MILLI, min_size=3, max_size=3),
    cpu=st.integers(0, 9_000),
)
def test_loss_equals_its_definition_on_any_node(pods: dict[PodRequest, int], used: list[int], cpu: int) -> None:
    node = a_gpu_node("n1", 3, cpu_milli=cpu, model="A")
    fleet = Fleet([node, a_gpu_node("n2", 1, model="B")])
    for device, milli in enumerate(used):
        fleet.take(placed("n1", PodRequest(containers=(share(milli),)), (device,)))
    free = [1_000 - milli for milli in used]
    count = sum(pods.values())
    expected = sum(pods[pod] / count * _loss(pod, node, free) for pod in pods)
    assert Stranding(pods, fleet.hardware).of(fleet.rows())[0] == pytest.approx(expected)


def _loss(pod: PodRequest, node: GpuNode, free: list[int]) -> float:
    asked = pod.containers[0]
    serving = [milli for milli in free if milli >= asked.milli_each]
    by_devices = len(serving) // asked.count if asked.devices else sum(milli // asked.milli for milli in free)
    limits = [by_devices]
    limits += [node.cpu_milli // pod.cpu_milli] if pod.cpu_milli else []
    limits += [node.memory_mib // pod.memory_mib] if pod.memory_mib else []
    pods = min(limits) if not pod.models or node.model in pod.models else 0
    fragment = sum(free) - sum(serving) if pods else sum(free)
    return fragment + FILL_WEIGHT * (sum(free) - pods * pod.total_milli)


@given(pods=st.dictionaries(POD, st.integers(1, 5), min_size=1, max_size=6), milli=MILLI)
def test_loss_with_a_share_is_that_after_it_is_taken(pods: dict[PodRequest, int], milli: int) -> None:
    fleet = Fleet([a_gpu_node("n1", 2, model="A")])
    stranding, rows = Stranding(pods, fleet.hardware), fleet.rows()
    ahead = stranding.with_share(rows, np.array([0, 0]), np.array([0, 1]), milli)
    fleet.take(placed("n1", PodRequest(containers=(share(milli),)), (1,)))
    assert ahead == pytest.approx(stranding.of(fleet.rows()).repeat(2))


def test_a_node_that_would_run_out_of_cpu_has_a_loss_though_every_pod_fits() -> None:
    fleet = Fleet([a_gpu_node("n1", 8, cpu_milli=96_000)])
    stranding = Stranding({a_pod(whole(1), cpu_milli=12_500): 1}, fleet.hardware)
    assert stranding.of(fleet.rows())[0] == pytest.approx(FILL_WEIGHT * 1_000)


def test_pressure_is_demand_over_what_there_is_and_pods_without_models_press_on_all() -> None:
    fleet = Fleet([a_gpu_node("n1", 4, model="A"), a_gpu_node("n2", 4, model="B")])
    anywhere = PodRequest(containers=(GpuRequest(devices=Gpus(1)),))
    only_a = PodRequest(containers=(GpuRequest(devices=Gpus(1)),), models=("A",))
    nowhere = PodRequest(containers=(GpuRequest(devices=Gpus(1)),), models=("C",))
    assert Stranding({anywhere: 3}, fleet.hardware).pressure.tolist() == pytest.approx([1.0, 1.0])
    assert Stranding({anywhere: 1, only_a: 1}, fleet.hardware).pressure.tolist() == pytest.approx([1.5, 0.5])
    assert Stranding({anywhere: 1, nowhere: 1}, fleet.hardware).pressure.tolist() == pytest.approx([0.5, 0.5])
    assert Stranding({}, fleet.hardware).pressure.tolist() == [0.0, 0.0]


def test_pods_that_ask_for_no_device_count_for_nothing() -> None:
    fleet = Fleet([a_gpu_node("n1", 2)])
    with_them = Stranding({a_pod(share(300)): 1, a_pod(): 9}, fleet.hardware)
    without = Stranding({a_pod(share(300)): 1}, fleet.hardware)
    assert with_them.of(fleet.rows()).tolist() == without.of(fleet.rows()).tolist()
