"""Claims about shared GPUs: the published runs of FGD's authors come out of the simulation, column by column.

The first half of one list, at every commit; `make fidelity` runs all of it.
"""

import pytest

from benchmarks.fidelity_sharing import MOST_POINTS, POLICIES, SharingCase, differences, published, repeat
from benchmarks.sharing.experiment import simulate
from benchmarks.sharing.openb import LISTS, OPENB, load_list
from tests.public_data import folder_or_skip
from voda.sharing.rating.raters import RATERS


@pytest.mark.parametrize("policy", POLICIES)
def test_first_half_of_a_run_is_the_published_one(policy: str) -> None:
    folder_or_skip(OPENB)
    case = SharingCase(workload="default", policy=policy, seed=42)
    found = differences(repeat(case, until=50.6), published()[case])
    assert set(found) == {"frag_0", "frag_50"}
    assert max(found.values()) <= MOST_POINTS


@pytest.mark.slow
@pytest.mark.parametrize("workload", LISTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_run_is_the_published_one_in_every_column(workload: str, policy: str) -> None:
    folder_or_skip(OPENB)
    case = SharingCase(workload=workload, policy=policy, seed=51)
    found = differences(repeat(case), published()[case])
    assert len(found) == 16
    assert max(found.values()) <= MOST_POINTS


def test_orders_of_other_seeds_are_drawn_and_the_same_again() -> None:
    folder_or_skip(OPENB)
    workload = load_list("default")
    once, again, other = (workload.arrivals(seed) for seed in (7, 7, 8))
    assert once == again
    assert once.pods != other.pods
    assert sorted(once.pods[: len(workload.pods)]) == list(range(len(workload.pods)))
    arrived = sum(workload.pods[place].total_milli for place in once.pods) / workload.capacity_milli
    assert 1.3 <= arrived < 1.31


def test_load_when_pods_arrive_is_what_they_ask_for_and_nothing_is_unallocated_twice() -> None:
    folder_or_skip(OPENB)
    run = simulate(load_list("default"), RATERS["binpack"], 42, until=5.0)
    assert [point.load for point in run.points] == [0, 1, 2, 3, 4, 5]
    assert [round(point.unallocated + point.load) for point in run.points] == [100] * 6
    assert (run.dropped, run.at(3).load, run.at(99).load) == (0, 3, 5)
