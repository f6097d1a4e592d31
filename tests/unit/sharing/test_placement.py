"""Where pods go: on nodes and devices that have room, containers of one pod jointly."""

import pytest

from tests.sharing import a_gpu_node, a_placer, a_pod, placed, share, whole
from voda.domain.gpus import GpuRequest
from voda.sharing.rating.fleet import Fleet


def test_place_when_nothing_fits_returns_none_and_takes_nothing() -> None:
    fleet = Fleet([a_gpu_node(devices=2)])
    placer = a_placer(fleet)
    for pod in (
        a_pod(whole(3)),
        a_pod(share(1, 16_001)),
        a_pod(share(1), cpu_milli=32_001),
        a_pod(share(600), whole(2)),
    ):
        assert placer.place(pod) is None
    assert (fleet.free == fleet.hardware.total).all()
    assert a_placer(Fleet([])).place(a_pod(share(1))) is None


def test_place_when_a_pod_names_models_goes_to_one_of_them() -> None:
    placer = a_placer(Fleet([a_gpu_node("n1", model="T4"), a_gpu_node("n2", model="A100")]))
    assert placer.place(a_pod(share(100), models=("A100", "H100"))) == placed(
        "n2", a_pod(share(100), models=("A100", "H100")), (0,)
    )
    assert placer.place(a_pod(share(100), models=("H100",))) is None


def test_place_when_a_pod_asks_for_no_gpu_takes_cpu_alone() -> None:
    fleet = Fleet([a_gpu_node(devices=1)])
    assert a_placer(fleet).place(a_pod(cpu_milli=500)) == placed("n1", a_pod(cpu_milli=500))
    assert fleet.rows().whole.all()
    assert fleet.rows().cpu.tolist() == [31_500]


def test_place_when_containers_differ_serves_the_largest_first_and_answers_in_their_order() -> None:
    pod = a_pod(share(300), GpuRequest(), whole(1), share(800))
    chosen = a_placer(Fleet([a_gpu_node(devices=3)])).place(pod)
    assert chosen is not None
    assert chosen.devices == ((2,), (), (0,), (1,))


def test_place_when_the_raters_order_fails_tries_the_tightest_devices() -> None:
    fleet = Fleet([a_gpu_node(devices=2)])
    fleet.take(placed("n1", a_pod(share(500)), (0,)))
    # Spread would put 500 on the empty device, and leave 600 without one.
    pod = a_pod(share(500), share(600, 100))
    fleet.take(placed("n1", a_pod(share(400)), (1,)))
    chosen = a_placer(fleet, "spread").place(pod)
    assert chosen is not None
    assert chosen.devices == ((0,), (1,))


@pytest.mark.parametrize("rater", ["binpack", "fgd", "load", "topology"])
def test_place_when_nodes_are_equal_takes_the_first(rater: str) -> None:
    placer = a_placer(Fleet([a_gpu_node("n2"), a_gpu_node("n1")]), rater, [a_pod(share(500))])
    chosen = placer.place(a_pod(share(500)))
    assert chosen is not None
    assert chosen.node == "n2"
