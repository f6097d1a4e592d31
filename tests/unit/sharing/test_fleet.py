"""What is free on nodes: taken and given back exactly, and never more than there is."""

import pytest

from tests.sharing import a_gpu_node, a_pod, placed, share, whole
from voda.sharing.rating.fleet import Fleet


def test_take_when_a_share_fits_leaves_the_rest_of_the_device() -> None:
    fleet = Fleet([a_gpu_node(devices=2, memory_mib=16_000)])
    fleet.take(placed("n1", a_pod(share(300, 4_000), cpu_milli=2_000), (1,)))
    rows = fleet.rows()
    assert rows.milli.tolist() == [[1_000, 700]]
    assert rows.device_memory.tolist() == [[16_000, 12_000]]
    assert (rows.cpu.tolist(), rows.memory.tolist()) == ([30_000], [63_000])
    assert rows.whole.tolist() == [[True, False]]


def test_take_when_memory_alone_is_shared_leaves_no_whole_device() -> None:
    fleet = Fleet([a_gpu_node(devices=1)])
    fleet.take(placed("n1", a_pod(share(0, 1)), (0,)))
    assert not fleet.rows().whole.any()


@pytest.mark.parametrize(
    "pod",
    [a_pod(share(701)), a_pod(share(10, 12_001)), a_pod(whole(1)), a_pod(share(1), cpu_milli=32_000)],
    ids=["compute", "memory", "whole device", "CPU"],
)
def test_take_when_it_is_not_free_is_refused_and_takes_nothing(pod: object) -> None:
    fleet = Fleet([a_gpu_node(devices=1, memory_mib=16_000)])
    fleet.take(placed("n1", a_pod(share(300, 4_000)), (0,)))
    before = fleet.free.copy()
    with pytest.raises(ValueError, match=r"node n1: .* is not free there"):
        fleet.take(placed("n1", pod, (0,)))  # type: ignore[arg-type]
    assert (fleet.free == before).all()


def test_release_returns_what_was_taken_and_no_more() -> None:
    fleet = Fleet([a_gpu_node(devices=3)])
    both = placed("n1", a_pod(whole(2), share(400, 100)), (0, 2), (1,))
    fleet.take(both)
    fleet.release(both)
    assert (fleet.free == fleet.hardware.total).all()
    with pytest.raises(ValueError, match="was not taken there"):
        fleet.release(both)


@pytest.mark.parametrize("devices", [(0,), (0, 0), (0, 3), (-1, 0)], ids=["too few", "twice", "absent", "negative"])
def test_take_when_devices_do_not_serve_the_container_is_refused(devices: tuple[int, ...]) -> None:
    fleet = Fleet([a_gpu_node("n1", devices=3), a_gpu_node("n2", devices=8)])
    with pytest.raises(ValueError, match="do not serve"):
        fleet.take(placed("n1", a_pod(whole(2)), devices))


def test_fleet_when_a_node_is_unknown_or_named_twice_says_so() -> None:
    with pytest.raises(ValueError, match="two nodes have the same name"):
        Fleet([a_gpu_node("n1"), a_gpu_node("n1")])
    with pytest.raises(ValueError, match="there is no node n2"):
        Fleet([a_gpu_node("n1")]).take(placed("n2", a_pod(share(1)), (0,)))
