"""Failures: seeded, in order, and the same whatever policy is tried."""

import math

from voda.simulator.failures import Failure, FailureRates, FailureSchedule

RATES = FailureRates(node_mtbf_s=1000, node_repair_s=100, worker_mtbf_s=500)


def until(schedule: FailureSchedule, end_s: float, *, step_s: float) -> list[Failure]:
    taken: list[Failure] = []
    now_s = 0.0
    while now_s < end_s:
        now_s = min(now_s + step_s, end_s)
        taken += schedule.due(now_s)
    return taken


def test_schedule_when_nothing_ever_fails_is_empty() -> None:
    schedule = FailureSchedule(["n1"], FailureRates(), seed=1)
    assert schedule.next_at() == math.inf


def test_schedule_when_asked_in_other_steps_is_the_same() -> None:
    nodes = ["n1", "n2", "n3"]
    coarse = until(FailureSchedule(nodes, RATES, seed=1), 5000, step_s=5000)
    fine = until(FailureSchedule(nodes, RATES, seed=1), 5000, step_s=1)
    assert coarse == fine == sorted(fine)
    assert fine != until(FailureSchedule(nodes, RATES, seed=2), 5000, step_s=5000)


def test_schedule_when_a_node_fails_repairs_it_before_it_fails_again() -> None:
    mine = [f.kind for f in until(FailureSchedule(["n1"], RATES, seed=3), 20_000, step_s=10) if f.node == "n1"]
    assert mine[:4] == ["node_fails", "node_repaired", "node_fails", "node_repaired"]


def test_schedule_when_long_has_the_mean_rate() -> None:
    deaths = [f for f in until(FailureSchedule([], RATES, seed=4), 500_000, step_s=500_000) if f.kind == "worker_fails"]
    assert 900 < len(deaths) < 1100
    assert all(0 <= f.draw < 1 for f in deaths)
