"""What workers that come and go make of a job: its phase, its starts, and the time and GPUs it is charged for.

Rule: pure functions from one frozen job to the next; every projection that keeps jobs folds them by these.
"""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from voda.domain.job import Job, Phase
from voda.events.types import ExitCause


def charge(job: Job, now: float) -> Job:
    """Return the job with its totals carried on to `now`, to be taken whenever its number of replicas changes."""
    span_s = now - job.counted_at
    if not job.workers:
        return replace(job, counted_at=now, waiting_s=job.waiting_s + span_s)
    service = job.gpus * span_s
    return replace(
        job,
        counted_at=now,
        running_s=job.running_s + span_s,
        attained_service_gpu_s=job.attained_service_gpu_s + service,
        served_since_start_gpu_s=job.served_since_start_gpu_s + service,
    )


def start_workers(job: Job, workers: Mapping[int, str], now: float) -> Job:
    """Return the job once these workers hold their GPUs."""
    is_start = job.phase is not Phase.RUNNING
    job = replace(charge(job, now), workers={**job.workers, **workers})
    if not is_start:
        return job
    is_first = job.first_started_at is None
    return replace(
        job,
        phase=Phase.RUNNING,
        last_started_at=now,
        served_since_start_gpu_s=0.0,
        first_started_at=now if is_first else job.first_started_at,
        restarts=job.restarts if is_first else job.restarts + 1,
    )


def exit_workers(job: Job, gone: Collection[int], cause: ExitCause, now: float) -> Job:
    """Return the job once these workers hold no GPU any more."""
    left = {index: node for index, node in job.workers.items() if index not in gone}
    # A job whose workers all move is on its way, not halted: it keeps its start and its service.
    is_halt = bool(job.workers) and not left and cause != "migrated"
    job = replace(charge(job, now), workers=left)
    if not is_halt:
        return job
    started_at = now if job.last_started_at is None else job.last_started_at
    return replace(job, phase=Phase.WAITING, last_halted_at=now, last_run_s=now - started_at)
