"""FfDL Optimizer: the highest total speedup, found two ways, checked by trying everything."""

from itertools import product

import pytest

from tests.builders import a_job, a_node, a_state
from tests.reasons import said
from tests.views import drawn_view
from voda.domain.job import Job
from voda.domain.state import ClusterState, Estimate
from voda.policies.ffdl import Ffdl
from voda.policies.toolkit.estimates import speedup
from voda.policies.toolkit.order import by_submission


def kept_jobs(view: ClusterState) -> list[Job]:
    kept, free = [], view.capacity_gpus
    for job in by_submission(view):
        charge = job.spec.min_replicas * job.spec.gpus_per_replica
        if charge <= free:
            kept.append(job)
            free -= charge
    return kept


def total(view: ClusterState, sizes: dict[str, int]) -> float:
    return sum(speedup(view, view.jobs[job_id])[size] for job_id, size in sizes.items())


def best_total(view: ClusterState) -> float:
    """Try every combination of sizes of the kept jobs."""
    kept = kept_jobs(view)
    best = 0.0
    for sizes in product(*(range(job.spec.min_replicas, job.spec.max_replicas + 1) for job in kept)):
        charge = sum(size * job.spec.gpus_per_replica for size, job in zip(sizes, kept, strict=True))
        if charge <= view.capacity_gpus:
            best = max(best, total(view, {job.spec.job_id: size for size, job in zip(sizes, kept, strict=True)}))
    return best


@pytest.mark.parametrize("equal_gpus", [True, False])
def test_ffdl_when_every_combination_is_tried_has_the_best(equal_gpus: bool) -> None:
    for seed in range(600):
        view = drawn_view(seed, most_jobs=3, equal_gpus=equal_gpus)
        answer = {job_id: size for job_id, size in Ffdl().allocate(view, 0.0).replicas.items() if size}
        assert answer.keys() == {job.spec.job_id for job in kept_jobs(view)}, f"seed {seed}"
        assert total(view, answer) == pytest.approx(best_total(view), rel=1e-9), f"seed {seed}"


def test_ffdl_when_one_gpu_is_left_gives_it_to_the_job_that_gains_most_from_one() -> None:
    jobs = [a_job(name, submitted_at=place, max_replicas=3) for place, name in enumerate("abcd")]
    curves = {"a": (0, 1, 1.2, 1.3), "b": (0, 1, 6.0, 20.0), "c": (0, 1, 1.5, 2.5), "d": (0, 1, 1.5, 2.5)}
    estimates = {name: Estimate(speedup=curve) for name, curve in curves.items()}
    view = a_state(jobs=jobs, nodes=[a_node(gpus=5)], estimates=estimates)
    assert Ffdl().allocate(view, 0.0).replicas == {"a": 1, "b": 2, "c": 1, "d": 1}


def test_ffdl_when_a_speedup_is_known_beyond_the_most_replicas_gives_no_more_than_those() -> None:
    jobs = [a_job("a", max_replicas=2), a_job("b", submitted_at=1, max_replicas=3)]
    estimates = {"a": Estimate(speedup=(0, 1, 1.5, 50.0, 90.0)), "b": Estimate(speedup=(0, 1, 1.2, 1.3, 80.0))}
    view = a_state(jobs=jobs, nodes=[a_node(gpus=4)], estimates=estimates)
    assert Ffdl().allocate(view, 0.0).replicas == {"a": 2, "b": 2}


def test_ffdl_when_gains_are_equal_prefers_the_earlier_job() -> None:
    jobs = [a_job("b", submitted_at=1, max_replicas=4), a_job("a", submitted_at=2, max_replicas=4)]
    answer = Ffdl().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=5)]), 0.0)
    assert answer.replicas == {"b": 4, "a": 1}
    assert said(answer.reasons["b"]) == "starts with 4 workers, best total speedup 5.00 on 5 GPUs"


def test_ffdl_when_gains_are_equal_prefers_the_earlier_job_also_behind_one_that_gains_less() -> None:
    jobs = [a_job(name, submitted_at=place, max_replicas=3) for place, name in enumerate("abc")]
    curves = {"a": (0, 1, 1.2, 1.4), "b": (0, 1, 1.5, 2.0), "c": (0, 1, 1.5, 2.0)}
    estimates = {name: Estimate(speedup=curve) for name, curve in curves.items()}
    view = a_state(jobs=jobs, nodes=[a_node(gpus=5)], estimates=estimates)
    assert Ffdl().allocate(view, 0.0).replicas == {"a": 1, "b": 3, "c": 1}


def test_ffdl_when_two_steps_together_beat_one_takes_both() -> None:
    jobs = [a_job("steady", max_replicas=3), a_job("jumpy", submitted_at=1, max_replicas=3)]
    estimates = {"steady": Estimate(speedup=(0, 1, 1.6, 2.1)), "jumpy": Estimate(speedup=(0, 1, 1.1, 3.0))}
    view = a_state(jobs=jobs, nodes=[a_node(gpus=4)], estimates=estimates)
    assert Ffdl().allocate(view, 0.0).replicas == {"steady": 1, "jumpy": 3}


def test_ffdl_when_a_minimum_is_above_one_never_gives_less() -> None:
    """The ancestor did, and stopped."""
    jobs = [a_job("a", min_replicas=3, max_replicas=4), a_job("b", submitted_at=1, min_replicas=2, max_replicas=4)]
    assert Ffdl().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=4)]), 0.0).replicas == {"a": 4, "b": 0}


def test_ffdl_when_a_gain_drowns_in_the_sum_still_gives_it() -> None:
    jobs = [a_job("huge", max_replicas=3), a_job("tiny", submitted_at=1, max_replicas=2)]
    estimates = {"huge": Estimate(speedup=(0, 1, 1.5, 1e17)), "tiny": Estimate(speedup=(0, 1, 1.5))}
    view = a_state(jobs=jobs, nodes=[a_node(gpus=5)], estimates=estimates)
    assert Ffdl().allocate(view, 0.0).replicas == {"huge": 3, "tiny": 2}


def test_ffdl_when_only_all_gpus_together_pay_gives_them_to_one_job() -> None:
    jobs = [a_job(name, submitted_at=place, max_replicas=3) for place, name in enumerate("abcd")]
    slow, sudden = (0, 1, 1.1, 1.2), (0, 1, 1.0, 9.0)
    estimates = {name: Estimate(speedup=sudden if name == "b" else slow) for name in "abc"}
    estimates["d"] = Estimate(speedup=(0, 1, 1.0, 2.0))
    view = a_state(jobs=jobs, nodes=[a_node(gpus=6)], estimates=estimates)
    assert Ffdl().allocate(view, 0.0).replicas == {"a": 1, "b": 3, "c": 1, "d": 1}
