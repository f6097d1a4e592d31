"""Tiresias as the peer has it: two queues by GPU time, first in first out, rigid jobs, no way back up.

Source: the simulator of Qiao et al., OSDI'21, after Gu et al., NSDI'19. Rule: a job falls to the end of the lower
queue once it has held its GPUs for 16 GPU-hours, delays of restarts included; smaller jobs pass one that does not fit.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from benchmarks.peer.jobs import PeerJobs
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.plan import Allocation
from voda.domain.reasons.outcomes import Keeps, Reason, Waits
from voda.domain.state import ClusterState

DEMOTE_GPU_S: Final = 57_600.0
_LOWER: Final = 1


class PeerTiresias:
    """Runs what fits, in the order of the queues."""

    name: ClassVar[str] = "peer-tiresias"
    title: ClassVar[str] = "two queues by GPU time, first in first out, rigid (simulator of Pollux)"
    paper: ClassVar[str] = "Qiao et al., Pollux, OSDI 2021, after Gu et al., Tiresias, NSDI 2019"

    def __init__(self, jobs: PeerJobs) -> None:
        self._jobs = jobs

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        """See Policy.allocate."""
        left = view.capacity_gpus
        replicas: dict[str, int] = {}
        reasons: dict[str, Reason] = {}
        for job_id in self.order(view, {}):
            asked = view.jobs[job_id].spec.requested
            fits = asked <= left
            replicas[job_id] = asked if fits else 0
            reasons[job_id] = Keeps(workers=asked) if fits else Waits(needs=Gpus(asked), free=left)
            left -= replicas[job_id]
        return Allocation(replicas=replicas, reasons=reasons)

    def order(self, view: ClusterState, replicas: Mapping[str, int]) -> Sequence[str]:
        """See Ordering.order: the upper queue, then the lower one, each in the order in which its jobs came to it."""
        return sorted(view.jobs, key=lambda job_id: self._turn(view.jobs[job_id]))

    def requeue(self, view: ClusterState, now: float) -> Mapping[str, tuple[int, str]]:
        """See Queueing.requeue."""
        return {
            job_id: (_LOWER, f"held its GPUs for {DEMOTE_GPU_S / 3600:g} GPU-hours")
            for job_id, job in view.jobs.items()
            if job.replicas and job.queue_level < _LOWER and _service_gpu_s(job, now) >= DEMOTE_GPU_S
        }

    def requeue_due_at(self, view: ClusterState, now: float) -> float:
        """See Queueing.requeue_due_at."""
        running = [job for job in view.jobs.values() if job.replicas and job.queue_level < _LOWER]
        ends = (now + (DEMOTE_GPU_S - _service_gpu_s(job, now)) / job.spec.requested for job in running)
        return min((end for end in ends if end > now), default=math.inf)

    def _turn(self, job: Job) -> tuple[int, float, int]:
        return job.queue_level, job.queued_since or 0.0, self._jobs.rank(job.spec.job_id)


def _service_gpu_s(job: Job, now: float) -> float:
    """Return what the peer counts: seconds with workers times the replicas asked for."""
    return job.running_by(now) * job.spec.requested
