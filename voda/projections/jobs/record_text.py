"""How a job stands, as English sentences. Pure."""

from voda.events.text.failures import failure_text
from voda.events.text.reasons import job_text
from voda.events.text.stalls import sick_gpus_text, stall_text
from voda.projections.jobs.record import JobRecord


def explanation_text(record: JobRecord) -> str:
    """Return why a job has its workers, or none, with what keeps it from running as planned."""
    keeps = "" if record.is_canceling or record.is_halted else obstacle_text(record)
    return "; ".join(part for part in (job_text(record.present_reason), keeps) if part)


def obstacle_text(record: JobRecord) -> str:
    """Return what keeps a live job from running as planned; empty: nothing."""
    if record.awaits_actions:
        return record.last_error
    return stall_text(record.stall) or (sick_gpus_text(record.job) if record.is_live else "")


def last_failure_text(record: JobRecord) -> str:
    """Return how the program of a job failed the last time: `worker-0 ended with exit code 1: no data`."""
    return f"{'a process of ' if record.was_inside else ''}{failure_text(record.last_failure)}"
