"""What running jobs can spare for pods that ask for parts of GPUs. Pure."""

from collections import Counter
from collections.abc import Mapping

from voda.domain.job import Job
from voda.domain.state import ClusterState


def spare_gpus(view: ClusterState) -> Mapping[str, int]:
    """Return node -> its GPUs that no job needs for its minimum, of those that run or are planned to."""
    kept = Counter[str]()
    for job_id, job in view.jobs.items():
        if not job.is_canceling:
            # A worker that has yet to come, or to come back, needs its GPUs as one that is there.
            nodes = {**dict(enumerate(view.plan.placement.get(job_id, ()))), **job.workers}
            for index in sorted(nodes)[: job.spec.min_replicas]:
                kept[nodes[index]] += job.spec.gpus_per_replica
    return {name: max(0, node.usable_gpus - kept[name]) for name, node in view.nodes.items()}


def is_waiting(view: ClusterState, job: Job) -> bool:
    """Return whether a job waits for GPUs."""
    return not (job.workers or job.is_canceling or job.spec.job_id in view.plan.placement)
