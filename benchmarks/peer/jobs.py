"""What the peer's rules know of a workload beyond the view: the order of its file, and the true speed of its jobs."""

from collections.abc import Iterable

from voda.domain.job import Job
from voda.simulator.workload import Workload
from voda.simulator.workloads.pollux_applications import Application, PolluxProfile
from voda.simulator.workloads.pollux_step_times import GPUS_PER_NODE


class PeerJobs:
    """One of the Pollux workloads, as its simulator reads it."""

    def __init__(self, workload: Workload) -> None:
        """Keep what the workload's profiles say.

        Raises:
            ValueError: a job of the workload is not one of Pollux's.
        """
        self._rank = {arrival.spec.job_id: rank for rank, arrival in enumerate(workload.arrivals)}
        self._profiles: dict[str, PolluxProfile] = {}
        self._iteration_s: dict[tuple[Application, int, int], float] = {}
        for arrival in workload.arrivals:
            if not isinstance(arrival.profile, PolluxProfile):
                raise ValueError(f"job {arrival.spec.job_id}: expected a PolluxProfile, got {arrival.profile!r}")
            self._profiles[arrival.spec.job_id] = arrival.profile

    def rank(self, job_id: str) -> int:
        """Return the line of the job in the workload's file, from 0; what breaks the peer's ties."""
        return self._rank[job_id]

    def in_file_order(self, job_ids: Iterable[str]) -> list[str]:
        """Return the jobs in the order of the workload's file."""
        return sorted(job_ids, key=self._rank.__getitem__)

    def iteration_s(self, job_id: str, replicas: int) -> float:
        """Return the true seconds of one iteration on `replicas` >= 1 workers, packed into whole nodes."""
        profile = self._profiles[job_id]
        key = (profile.application, profile.batch, replicas)
        if (seconds := self._iteration_s.get(key)) is None:
            full, rest = divmod(replicas, GPUS_PER_NODE)
            per_node = (GPUS_PER_NODE,) * full + ((rest,) if rest else ())
            seconds = self._iteration_s[key] = profile.application.iteration_s(profile.batch, per_node)
        return seconds

    def iterations_left(self, job: Job) -> float:
        """Return the iterations from the end of the current epoch to that of the last; 1 in the last epoch.

        So the peer counts: the current epoch is left out, and a job in its last epoch counts as nearly done.
        """
        profile = self._profiles[job.spec.job_id]
        epoch, last = int(job.epochs_done), profile.epochs - 1
        if epoch >= last:
            return 1.0
        application = profile.application
        return application.iterations(profile.batch, last) - application.iterations(profile.batch, epoch)
