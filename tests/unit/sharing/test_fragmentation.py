"""F of nodes, against the definition written out; and the kinds that it is a mean over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sharing import a_gpu_node, a_pod, placed, share, whole
from voda.sharing.rating.fleet import Fleet
from voda.sharing.rating.fragmentation import Fragmentation
from voda.sharing.rating.kinds import TypicalKind, typical_kinds
from voda.sharing.rating.nodes import GpuNode
from voda.sharing.rating.pod import PodRequest


def test_typical_kinds_cover_the_share_asked_for_most_frequent_first() -> None:
    pods = {a_pod(share(500)): 6, a_pod(whole(1)): 3, a_pod(): 1}
    assert typical_kinds(pods, 0.9) == [
        TypicalKind(share=6 / 9, cpu_milli=1_000, milli=500, devices=1),
        TypicalKind(share=3 / 9, cpu_milli=1_000, milli=1_000, devices=1),
    ]
    assert [kind.devices for kind in typical_kinds(pods, 1.0)] == [1, 1, 0]
    assert typical_kinds({}, 0.95) == []


def test_typical_kinds_when_equally_frequent_are_in_descending_order() -> None:
    pods = dict.fromkeys([a_pod(share(100)), a_pod(share(200)), a_pod(share(100), cpu_milli=2_000)], 1)
    assert [(kind.cpu_milli, kind.milli) for kind in typical_kinds(pods, 1.0)] == [
        (2_000, 100),
        (1_000, 200),
        (1_000, 100),
    ]


def test_typical_kinds_of_a_pod_with_several_containers_are_those_of_the_largest() -> None:
    (kind,) = typical_kinds({a_pod(share(100), whole(2), share(900)): 1}, 1.0)
    assert (kind.milli, kind.devices) == (1_000, 2)


def test_fragment_is_what_the_usual_pods_cannot_use() -> None:
    fleet = Fleet([a_gpu_node("n1", 2), a_gpu_node("n2", 2, cpu_milli=500)])
    fleet.take(placed("n1", a_pod(share(600), cpu_milli=0), (0,)))
    kinds = typical_kinds({a_pod(share(500)): 1, a_pod(): 1}, 1.0)
    # Half of the pods ask for no GPU: for them all is fragment; on n2 the CPU is short for the others, too.
    assert Fragmentation(kinds, fleet.hardware).of(fleet.rows()).tolist() == [(400 + 1_400) / 2, 2_000]


MILLI = st.sampled_from([0, 100, 250, 500, 810])
POD = st.builds(
    lambda milli, devices, cpu, models: PodRequest(
        cpu_milli=cpu, containers=(whole(devices) if devices else share(milli),), models=models
    ),
    MILLI,
    st.integers(0, 3),
    st.sampled_from([0, 1_000, 3_000]),
    st.sampled_from([(), ("A",), ("B",), ("A", "B")]),
)


@given(
    pods=st.lists(POD, min_size=1, max_size=6), used=st.lists(MILLI, min_size=3, max_size=3), cpu=st.integers(0, 4_000)
)
def test_fragment_equals_its_definition_on_any_node(pods: list[PodRequest], used: list[int], cpu: int) -> None:
    node = a_gpu_node("n1", 3, cpu_milli=cpu, model="A")
    fleet = Fleet([node, a_gpu_node("n2", 1, model="B")])
    for device, milli in enumerate(used):
        fleet.take(placed("n1", PodRequest(containers=(share(milli),)), (device,) if milli else ()))
    free = [1_000 - milli for milli in used]
    kinds = typical_kinds(dict.fromkeys(pods, 1), 1.0)
    expected = sum(kind.share * _fragment(kind, node, free) for kind in kinds)
    assert Fragmentation(kinds, fleet.hardware).of(fleet.rows())[0] == pytest.approx(expected)


def _fragment(kind: TypicalKind, node: GpuNode, free: list[int]) -> int:
    fitting = [milli for milli in free if milli >= kind.milli]
    is_fit = len(fitting) >= kind.devices and node.cpu_milli >= kind.cpu_milli
    if not kind.milli or (kind.models and node.model not in kind.models) or not is_fit:
        return sum(free)
    return sum(free) - sum(fitting)
