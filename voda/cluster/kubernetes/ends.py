"""How a job ended: as its operator says, or because its workers failed more often than it allows.

Rule: pure.
"""

from collections.abc import Sequence

from voda.cluster.kubernetes import names
from voda.cluster.kubernetes.inventory import Seen
from voda.cluster.kubernetes.kinds.failures import exhausted
from voda.cluster.kubernetes.objects import Pod
from voda.events.types import JobCompleted, JobFailed


def ended(seen: Seen, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
    """Return how a job ended; None while it goes on."""
    if (end := seen.kind.end(seen.object, pods, job_id)) is not None:
        return end
    reason = exhausted(seen.object, worker_failures(seen))
    return JobFailed(job_id=job_id, reason=reason) if reason else None


def worker_failures(seen: Seen) -> int:
    """Return how many workers of the object failed by themselves so far, as noted on it."""
    text = seen.object.metadata.annotations.get(names.WORKER_FAILURES, "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
