"""Elastic-Tiresias: the same answers as the rule read literally, one replica and one scan at a time."""

from tests.builders import a_job, a_node, a_state
from tests.reasons import said, sentences
from tests.views import drawn_view
from voda.domain.job import Job
from voda.domain.settings import Settings
from voda.domain.state import ClusterState, Estimate
from voda.policies.elastic_tiresias import ElasticTiresias
from voda.policies.toolkit.estimates import speedup


def literally(view: ClusterState) -> dict[str, int]:
    jobs = sorted(
        (job for job in view.jobs.values() if not job.is_canceling), key=lambda j: (j.submitted_at, j.spec.job_id)
    )
    started = [9e9 if job.first_started_at is None else job.first_started_at for job in jobs]
    line = [job for _, job in sorted(zip(started, jobs, strict=True), key=lambda pair: (pair[1].queue_level, pair[0]))]
    free, dealt = view.capacity_gpus, {job.spec.job_id: 0 for job in jobs}
    for job in line:
        if job.spec.requested * job.spec.gpus_per_replica <= free:
            dealt[job.spec.job_id] = job.spec.requested
            free -= job.spec.requested * job.spec.gpus_per_replica
    if list(dealt.values()).count(0) > int(view.settings.parameters["elastic-tiresias"]["compact_pending"]):
        for job in jobs:
            if job.queue_level == 1 and dealt[job.spec.job_id]:
                free += (dealt[job.spec.job_id] - job.spec.min_replicas) * job.spec.gpus_per_replica
                dealt[job.spec.job_id] = job.spec.min_replicas

    def gain(job: Job) -> float:
        spec, count, curve = job.spec, dealt[job.spec.job_id], speedup(view, job)
        return curve[count + 1] - curve[count] if count else curve[spec.min_replicas] / spec.min_replicas

    aside: set[str] = set()
    while True:
        best = None
        for job in sorted(jobs, key=lambda j: j.queue_level):
            spec = job.spec
            if dealt[spec.job_id] < spec.max_replicas and spec.job_id not in aside and gain(job) > 0:
                best = job if best is None or gain(job) > gain(best) else best
        if best is None:
            return dealt
        step = 1 if dealt[best.spec.job_id] else best.spec.min_replicas
        if step * best.spec.gpus_per_replica > free:
            aside.add(best.spec.job_id)
        else:
            free -= step * best.spec.gpus_per_replica
            dealt[best.spec.job_id] += step


def test_elastic_tiresias_when_compared_with_the_literal_rule_gives_the_same() -> None:
    for seed in range(2_000):
        view = drawn_view(seed)
        assert ElasticTiresias().allocate(view, 0.0).replicas == literally(view), f"seed {seed}"


def test_elastic_tiresias_when_many_are_pending_compacts_the_lower_queue() -> None:
    low = a_job("low", max_replicas=4, requested_replicas=4, queue_level=1, first_started_at=1.0)
    high = [a_job(f"high{i}", min_replicas=3, max_replicas=3, submitted_at=1) for i in range(3)]
    view = a_state(
        jobs=[low, *high],
        nodes=[a_node(gpus=8)],
        placement={"low": ("n1",) * 4, "high0": ("n1",) * 3},
        settings=Settings(parameters={"elastic-tiresias": {"compact_pending": 0}}),
    )
    answer = ElasticTiresias().allocate(view, 0.0)
    assert answer.replicas == {"high0": 3, "high1": 3, "high2": 0, "low": 2}
    crowded = a_state(jobs=[low, *high], nodes=[a_node(gpus=7)], placement=view.plan.placement, settings=view.settings)
    answer = ElasticTiresias().allocate(crowded, 0.0)
    assert answer.replicas == {"high0": 3, "high1": 3, "high2": 0, "low": 1}


def test_elastic_tiresias_when_a_compacted_job_does_not_grow_again_says_so() -> None:
    low = a_job("low", max_replicas=4, requested_replicas=4, queue_level=1, first_started_at=1.0)
    large = a_job("large", min_replicas=8, max_replicas=8, submitted_at=1, queue_level=1)
    view = a_state(
        jobs=[low, large],
        nodes=[a_node(gpus=8)],
        placement={"low": ("n1",) * 4},
        estimates={"low": Estimate(speedup=(0, 1, 1, 1, 1)), "large": Estimate(speedup=(0, *(1,) * 8))},
        settings=Settings(parameters={"elastic-tiresias": {"compact_pending": 0}}),
    )
    answer = ElasticTiresias().allocate(view, 0.0)
    assert answer.replicas == {"low": 1, "large": 0}
    assert said(answer.reasons["low"]) == "shrunk from 4 to 1 worker: compacted, while 1 job cannot start"


def test_elastic_tiresias_when_nobody_gains_leaves_gpus_idle() -> None:
    job = a_job("a", max_replicas=4)
    estimates = {"a": Estimate(speedup=(0, 1, 1.5, 1.4, 9.0))}
    answer = ElasticTiresias().allocate(a_state(jobs=[job], nodes=[a_node(gpus=4)], estimates=estimates), 0.0)
    assert answer.replicas == {"a": 2}
    assert sentences(answer.reasons) == {"a": "starts with 2 workers, highest gain 0.50/GPU"}
