"""Ideal times: the yardstick of fairness."""

import pytest

from tests.builders import a_node, a_spec
from voda.simulator.metrics import IdealTimes, packed
from voda.simulator.workload import Arrival, Costs, Workload


class SteadyProfile:
    """Two epochs of 100 s on one worker, linear, twice as slow over nodes."""

    epochs = 2
    costs = Costs(start_s=10)

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        return 100 / sum(per_node) * len(per_node)


def times(gpus_per_replica: int = 1) -> IdealTimes:
    spec = a_spec("a", max_replicas=8, gpus_per_replica=gpus_per_replica)
    arrival = Arrival(spec=spec, submitted_s=0, profile=SteadyProfile())
    nodes = (a_node("n1", gpus=2), a_node("n2", gpus=4))
    return IdealTimes(Workload(name="w", source="", arrivals=(arrival,), nodes=nodes))


def test_packed_when_one_node_is_not_enough_fills_the_largest_first() -> None:
    assert packed(5, 1, (4, 2)) == (4, 1)
    assert packed(3, 2, (4, 4)) == (2, 1)
    assert packed(3, 3, (4, 2)) == (1,)


def test_ideal_time_when_on_whole_replicas_is_the_profiles() -> None:
    assert times()("a", 4) == 10 + 2 * 25
    assert times()("a", 5) == pytest.approx(10 + 2 * 40)
    assert times(gpus_per_replica=2)("a", 4) == 10 + 2 * 50


def test_ideal_time_when_between_sizes_interpolates_the_speed() -> None:
    assert times()("a", 1.5) == pytest.approx(1 / ((1 / 210 + 1 / 110) / 2))
    assert times()("a", 0.5) == pytest.approx(2 * 210)
