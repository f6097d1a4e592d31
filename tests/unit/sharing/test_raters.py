"""What is special about each rater."""

import numpy as np
import pytest

from tests.sharing import a_gpu_node, a_placer, a_pod, placed, share, whole
from voda.sharing.rating.demand import Demand
from voda.sharing.rating.fleet import Fleet
from voda.sharing.rating.placement import PodPlacer
from voda.sharing.rating.raters import RATERS, RatingContext


@pytest.fixture
def fleet() -> Fleet:
    """Two nodes, of which the second has a device in use."""
    fleet = Fleet([a_gpu_node("n1"), a_gpu_node("n2")])
    fleet.take(placed("n2", a_pod(share(400, 1_000)), (1,)))
    return fleet


def test_raters_are_those_of_the_documentation() -> None:
    assert {"binpack", "spread", "random", "fgd", "load", "topology"} <= set(RATERS)


def test_binpack_fills_the_fullest_device_that_fits(fleet: Fleet) -> None:
    assert a_placer(fleet, "binpack").place(a_pod(share(600))) == placed("n2", a_pod(share(600)), (1,))
    assert a_placer(fleet, "binpack").place(a_pod(share(601))) == placed("n2", a_pod(share(601)), (0,))


def test_spread_takes_the_emptiest_device_of_the_emptiest_node(fleet: Fleet) -> None:
    assert a_placer(fleet, "spread").place(a_pod(share(100))) == placed("n1", a_pod(share(100)), (0,))
    assert a_placer(fleet, "spread").place(a_pod(share(100))) == placed("n1", a_pod(share(100)), (1,))


def test_random_depends_on_the_pod_alone_and_uses_every_device() -> None:
    fleet = Fleet([a_gpu_node(f"n{number}") for number in range(4)])
    placer = a_placer(fleet, "random")
    chosen = [placer.choose(a_pod(share(100)), f"uid-{number}") for number in range(200)]
    assert chosen == [placer.choose(a_pod(share(100)), f"uid-{number}") for number in range(200)]
    places = [(each.node, each.devices[0]) for each in chosen if each is not None]
    assert len(places) == 200
    counts = [places.count((f"n{node}", (device,))) for node in range(4) for device in range(2)]
    assert min(counts) > 10


def test_load_takes_the_device_that_is_used_least_and_counts_unmeasured_ones_by_what_is_taken() -> None:
    fleet = Fleet([a_gpu_node("n1"), a_gpu_node("n2")])
    fleet.take(placed("n1", a_pod(share(500)), (0,)))
    used = np.array([[0.1, 0.9], [0.3, np.nan]])
    context = RatingContext(demand=Demand([], fleet.hardware), load=used)
    fleet.take(placed("n2", a_pod(share(700)), (1,)))
    placer = PodPlacer(fleet, RATERS["load"], context)
    assert placer.choose(a_pod(share(200))) == placed("n1", a_pod(share(200)), (0,))
    assert placer.choose(a_pod(whole(1))) == placed("n2", a_pod(whole(1)), (0,))


def test_topology_takes_devices_of_one_group_and_the_smallest_that_has_enough() -> None:
    groups = ((0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (1, 2))
    fleet = Fleet([a_gpu_node("n1", 6, groups=groups)])
    placer = a_placer(fleet, "topology")
    two = placer.choose(a_pod(whole(2)))
    three = placer.choose(a_pod(whole(3)))
    assert two == placed("n1", a_pod(whole(2)), (1, 2))
    assert three is not None
    assert three.devices in {((0, 1, 2),), ((3, 4, 5),)}
    fleet.take(placed("n1", a_pod(share(100)), (4,)))
    assert placer.choose(a_pod(whole(3))) == placed("n1", a_pod(whole(3)), (0, 1, 2))
    # A share comes to where a group is broken already, and fills the device in use.
    assert placer.choose(a_pod(share(100))) == placed("n1", a_pod(share(100)), (4,))


def test_topology_prefers_the_node_whose_devices_are_close() -> None:
    near, far = ((0,), (0,)), ((0,), (1,))
    fleet = Fleet([a_gpu_node("n1", 2, groups=far), a_gpu_node("n2", 2, groups=near)])
    chosen = a_placer(fleet, "topology").place(a_pod(whole(2)))
    assert chosen is not None
    assert chosen.node == "n2"


def test_fgd_puts_a_share_where_a_whole_device_stays_for_the_usual_pods() -> None:
    usual = [a_pod(whole(1))] * 3 + [a_pod(share(500))]
    fleet = Fleet([a_gpu_node("n1"), a_gpu_node("n2")])
    fleet.take(placed("n2", a_pod(share(500)), (0,)))
    assert a_placer(fleet, "fgd", usual).place(a_pod(share(500))) == placed("n2", a_pod(share(500)), (0,))


def test_lookahead_spares_the_model_that_others_need() -> None:
    usual = [a_pod(whole(1), models=("T4",))] * 3 + [a_pod(whole(1))]
    fleet = Fleet([a_gpu_node("n1", model="T4"), a_gpu_node("n2", model="G2")])
    chosen = a_placer(fleet, "lookahead", usual).choose(a_pod(whole(1)))
    assert chosen is not None
    assert chosen.node == "n2"


def test_lookahead_keeps_cpu_for_the_devices_that_are_left() -> None:
    # On n1 a pod of 20 cores leaves 12 for one device, on n2 44: a usual pod needs 16.
    usual = [a_pod(whole(1), cpu_milli=16_000)]
    fleet = Fleet([a_gpu_node("n1", cpu_milli=32_000), a_gpu_node("n2", cpu_milli=64_000)])
    chosen = a_placer(fleet, "lookahead", usual).choose(a_pod(share(500), cpu_milli=20_000))
    assert chosen is not None
    assert chosen.node == "n2"


def test_lookahead_when_pods_need_no_device_takes_the_node_with_the_fewest_free() -> None:
    fleet = Fleet([a_gpu_node("n1"), a_gpu_node("n2")])
    fleet.take(placed("n2", a_pod(whole(2)), (0, 1)))
    assert a_placer(fleet, "lookahead", [a_pod(whole(1))]).choose(a_pod()) == placed("n2", a_pod())
