"""Growths that do not pay: who gets the GPUs instead."""

from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.reasons import said
from voda.domain.gpus import Gpus
from voda.domain.state import ClusterState, Estimate, Surplus
from voda.planner.allocation.resize_cost import without_thrash


def test_gpus_of_a_growth_that_does_not_pay_serve_as_many_waiting_jobs_as_they_are_enough_for() -> None:
    running = a_job("a", max_replicas=5, workers={0: "n1"})
    waiting = [a_job(name, gpus_per_replica=2, submitted_at=1.0 + place) for place, name in enumerate("bcd")]
    view = a_state(
        jobs=[running, *waiting],
        nodes=[a_node("n1", gpus=5)],
        placement={"a": ("n1",)},
        estimates={"a": Estimate(speedup=(0, 1, 2, 3, 4, 5), remaining_s=100.0, resize_cost_s=500.0)},
    )
    replicas, reasons = without_thrash(view, {"a": 5, "b": 0, "c": 0, "d": 0}, now=0.0)
    assert replicas == {"a": 1, "b": 1, "c": 1, "d": 0}
    assert said(reasons["a"]) == "kept at 1 worker: growing to 5 would save 80 s and cost 500 s"
    assert said(reasons["b"]) == "starts with 1 worker: to grow other jobs by these GPUs would not pay"


def test_growth_of_a_job_on_nodes_of_one_gpu_that_does_not_pay_is_left_out() -> None:
    running = a_job("a", max_replicas=3, workers={0: "n1"})
    view = a_state(
        jobs=[running],
        nodes=[a_node("n1", gpus=1), a_node("n2", gpus=2)],
        placement={"a": ("n1",)},
        estimates={"a": Estimate(speedup=(0, 1, 2, 3), remaining_s=100.0, resize_cost_s=500.0)},
    )
    assert without_thrash(view, {"a": 3}, now=0.0)[0] == {"a": 1}


def test_growth_that_does_not_pay_leaves_other_growths_as_they_are() -> None:
    jobs = [a_job(name, max_replicas=4, workers={0: "n1"}) for name in ("dear", "cheap", "unknown")]
    view = a_state(
        jobs=jobs,
        nodes=[a_node("n1", gpus=8)],
        placement={job.spec.job_id: ("n1",) for job in jobs},
        estimates={
            "dear": Estimate(speedup=(0, 1, 2, 3), remaining_s=100.0, resize_cost_s=500.0),
            "cheap": Estimate(speedup=(0, 1, 2, 3), remaining_s=900.0, resize_cost_s=1.0),
        },
    )
    replicas, reasons = without_thrash(view, {"dear": 3, "cheap": 3, "unknown": 2}, now=0.0)
    assert replicas == {"dear": 1, "cheap": 3, "unknown": 2}
    assert set(reasons) == {"dear"}


def test_gpus_of_a_growth_that_does_not_pay_undo_only_as_many_shrinks_as_they_are_enough_for() -> None:
    growing = a_job("a", max_replicas=5, workers={0: "n1"})
    shrunk = [
        a_job(name, gpus_per_replica=2, max_replicas=3, submitted_at=at, workers=dict.fromkeys(range(3), "n1"))
        for at, name in enumerate("bc", start=1)
    ]
    view = a_state(
        jobs=[growing, *shrunk],
        nodes=[a_node("n1", gpus=13)],
        placement={"a": ("n1",), "b": ("n1",) * 3, "c": ("n1",) * 3},
        estimates={
            "a": Estimate(speedup=(0, 1, 2, 3, 4, 5), remaining_s=100.0, resize_cost_s=500.0),
            "b": Estimate(speedup=(0, 1, 2, 3), remaining_s=100.0),
            "c": Estimate(speedup=(0, 1, 2, 3), remaining_s=100.0),
        },
    )
    # Four GPUs are left over: both replicas that b was to lose, and none of those of c.
    replicas, _ = without_thrash(view, {"a": 5, "b": 1, "c": 1}, now=0.0)
    assert replicas == {"a": 1, "b": 3, "c": 1}


def a_view_of_one(surplus: Surplus, *, cost_s: float = 300.0) -> ClusterState:
    view = a_state(
        jobs=[a_job("a", max_replicas=8, workers=dict.fromkeys(range(4), "n1"))],
        nodes=[a_node("n1", gpus=8)],
        placement={"a": ("n1",) * 4},
        estimates={"a": Estimate(speedup=range(9), remaining_s=1e6, resize_cost_s=cost_s)},
    )
    return replace(view, surplus=surplus)


def test_growth_by_gpus_that_starts_took_soon_of_late_is_left_out() -> None:
    surplus = Surplus(runs=((900.0, Gpus(4)),), taken_at=900.0, lasted_s=400.0)
    replicas, reasons = without_thrash(a_view_of_one(surplus), {"a": 8}, now=1000.0)
    assert replicas == {"a": 4}
    assert said(reasons["a"]) == (
        "kept at 4 workers: growing to 8 would save 400 s in the 6m 40s that such GPUs are free of late, and cost 900 s"
    )


def test_growth_by_gpus_that_are_free_for_long_pays_whatever_was_before() -> None:
    surplus = Surplus(runs=((900.0, Gpus(4)),), taken_at=900.0, lasted_s=400.0)
    assert without_thrash(a_view_of_one(surplus), {"a": 8}, now=1900.0)[0] == {"a": 8}


def test_growth_of_which_a_part_lasts_is_as_large_as_that_part() -> None:
    surplus = Surplus(runs=((9990.0, Gpus(1)),), taken_at=9995.0, lasted_s=5.0)
    replicas, reasons = without_thrash(a_view_of_one(surplus), {"a": 8}, now=10_000.0)
    assert replicas == {"a": 7}
    assert said(reasons["a"]).startswith("grown from 4 to 7 workers: growing to 8 would save")


def test_growth_without_a_restart_pays_however_soon_a_job_starts() -> None:
    surplus = Surplus(lasted_s=0.0)
    assert without_thrash(a_view_of_one(surplus, cost_s=0.0), {"a": 8}, now=0.0)[0] == {"a": 8}
