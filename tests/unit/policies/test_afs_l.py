"""AFS-L: the same answers as Algorithm 1 read literally, although its priority is no order."""

import math

from tests.builders import a_job, a_node, a_state
from tests.reasons import said, sentences
from tests.views import drawn_view
from voda.domain.job import Job
from voda.domain.state import ClusterState, Estimate
from voda.policies.afs_l import AfsL
from voda.policies.toolkit.estimates import remaining_s, speedup
from voda.policies.toolkit.order import by_submission


def literally(view: ClusterState) -> dict[str, int]:
    jobs = by_submission(view)
    dealt = {job.spec.job_id: 0 for job in jobs}

    def wins(champion: Job, challenger: Job) -> bool:
        """Return whether the challenger, who comes later in the line, has priority."""
        if not dealt[champion.spec.job_id] and not dealt[challenger.spec.job_id]:
            return remaining_s(view, challenger) < remaining_s(view, champion)
        is_shorter = length_s(challenger) < length_s(champion)
        a, b = (challenger, champion) if is_shorter else (champion, challenger)
        longer_wins = step(b) / at(b, 1) > (step(a) / at(a, 0) if at(a, 0) else math.inf)
        return longer_wins != is_shorter

    def at(job: Job, more: int) -> float:
        return speedup(view, job)[dealt[job.spec.job_id] + more]

    def step(job: Job) -> float:
        return at(job, 1) - at(job, 0)

    def length_s(job: Job) -> float:
        return remaining_s(view, job) / at(job, 0) if at(job, 0) else math.inf

    free, line = view.capacity_gpus, list(jobs)
    while line:
        top = line[0]
        for job in line[1:]:
            top = job if wins(top, job) else top
        spec = top.spec
        more = 1 if dealt[spec.job_id] else spec.min_replicas
        fits = more * spec.gpus_per_replica <= free
        if fits:
            free -= more * spec.gpus_per_replica
            dealt[spec.job_id] += more
        if not fits or dealt[spec.job_id] == spec.max_replicas:
            line.remove(top)
    return dealt


def test_afs_l_when_compared_with_the_literal_algorithm_gives_the_same() -> None:
    for seed in range(2_000):
        view = drawn_view(seed)
        assert AfsL().allocate(view, 0.0).replicas == literally(view), f"seed {seed}"


def test_afs_l_when_nobody_has_a_share_starts_with_the_shortest() -> None:
    jobs = [a_job("long"), a_job("short", submitted_at=1), a_job("unknown", submitted_at=-1)]
    estimates = {
        "long": Estimate(speedup=(0, 1), remaining_s=9e3),
        "short": Estimate(speedup=(0, 1), remaining_s=3600.0),
    }
    answer = AfsL().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=1)], estimates=estimates), 0.0)
    assert answer.replicas == {"unknown": 0, "long": 0, "short": 1}
    assert said(answer.reasons["short"]) == "starts with 1 worker, by gain and time left, 3,600 s at this size"
    assert said(answer.reasons["unknown"]) == "waits: needs 1 GPU, none is free"


def test_afs_l_when_jobs_beat_each_other_in_a_circle_gives_the_gpu_to_the_last_one_standing() -> None:
    """b beats a (longer, gains more), c beats b (shorter), a beats c (longer, gains more): the scan decides."""
    shapes = {"a": (10.0, 0.50), "b": (9.0, 0.36), "c": (8.0, 0.30)}
    for line, last in (("abc", "c"), ("bca", "a"), ("cab", "b")):
        jobs = [a_job(name, submitted_at=place, max_replicas=2) for place, name in enumerate(line)]
        estimates = {
            name: Estimate(speedup=(0, 1, 1 + gain), remaining_s=left_s) for name, (left_s, gain) in shapes.items()
        }
        answer = AfsL().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=4)], estimates=estimates), 0.0)
        assert {name for name, count in answer.replicas.items() if count == 2} == {last}


def test_afs_l_when_a_job_makes_no_headway_says_that_its_time_is_unknown() -> None:
    estimates = {"a": Estimate(speedup=(0, 0), remaining_s=100.0)}
    answer = AfsL().allocate(a_state(jobs=[a_job("a")], nodes=[a_node(gpus=1)], estimates=estimates), 0.0)
    assert sentences(answer.reasons) == {"a": "starts with 1 worker, by gain, time left unknown"}


def test_afs_l_when_more_gpus_bring_no_headway_either_takes_it_for_gain() -> None:
    estimates = {"a": Estimate(speedup=(0, 0, 0), remaining_s=100.0)}
    view = a_state(jobs=[a_job("a", max_replicas=2)], nodes=[a_node(gpus=2)], estimates=estimates)
    assert AfsL().allocate(view, 0.0).replicas == {"a": 2}


def test_afs_l_when_a_minimum_is_above_one_gives_it_at_once() -> None:
    jobs = [a_job("a", min_replicas=3, max_replicas=4), a_job("b", submitted_at=1, min_replicas=2, max_replicas=4)]
    assert AfsL().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=5)]), 0.0).replicas == {"a": 3, "b": 2}
