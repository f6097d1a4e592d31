"""Optimus as the peer has it, with an oracle: one GPU after the other to the job that gains the most by it.

Source: the simulator of Qiao et al., OSDI'21, after Peng et al., EuroSys'18. Rule: true step times and true remaining
iterations; a job stops growing where one more GPU does not help, even if two more would.
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import ClassVar

from benchmarks.peer.jobs import PeerJobs
from voda.domain.job import Job
from voda.domain.plan import Allocation
from voda.domain.reasons.outcomes import Keeps, Reason
from voda.domain.state import ClusterState


class PeerOptimus:
    """Greedy on the time saved; one GPU for everybody first."""

    name: ClassVar[str] = "peer-optimus"
    title: ClassVar[str] = "one GPU at a time to the largest saving of time, by an oracle (simulator of Pollux)"
    paper: ClassVar[str] = "Qiao et al., Pollux, OSDI 2021, after Peng et al., Optimus, EuroSys 2018"

    def __init__(self, jobs: PeerJobs) -> None:
        self._jobs = jobs

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        """See Policy.allocate."""
        in_order = self._jobs.in_file_order(view.jobs)
        left = view.capacity_gpus
        replicas = {job_id: int(position < left) for position, job_id in enumerate(in_order)}
        left -= sum(replicas.values())
        heap = [self._entry(view.jobs[job_id], 1) for job_id in in_order] if left else []
        heapq.heapify(heap)
        while left and heap and heap[0][0] < 0:
            job = view.jobs[heap[0][2]]
            replicas[job.spec.job_id] += 1
            left -= 1
            heapq.heapreplace(heap, self._entry(job, replicas[job.spec.job_id]))
        reasons: dict[str, Reason] = {job_id: Keeps(workers=n) for job_id, n in replicas.items()}
        return Allocation(replicas=replicas, reasons=reasons)

    def order(self, view: ClusterState, replicas: Mapping[str, int]) -> Sequence[str]:
        """See Ordering.order: small ones first."""
        return sorted(replicas, key=lambda job_id: (replicas[job_id], self._jobs.rank(job_id)))

    def _entry(self, job: Job, replicas: int) -> tuple[float, int, str]:
        """Return (minus the seconds that one more GPU saves, line in the file, job id)."""
        job_id = job.spec.job_id
        saved_s = 0.0
        if replicas < job.spec.max_replicas:
            faster_s = self._jobs.iteration_s(job_id, replicas) - self._jobs.iteration_s(job_id, replicas + 1)
            saved_s = faster_s * self._jobs.iterations_left(job)
        return -saved_s, self._jobs.rank(job_id), job_id
