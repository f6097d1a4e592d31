"""What is said of a job in words."""

from voda.events.reason_text import job_text
from voda.projections.job_record import JobRecord


def explanation(record: JobRecord) -> str:
    """Return why a job has its workers, or none, with what keeps it from running as planned."""
    keeps = "" if record.is_canceling or record.is_halted else record.obstacle
    return "; ".join(part for part in (job_text(record.present_reason), keeps) if part)
