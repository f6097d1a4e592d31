"""Tells voda's jobs from those that another controller suspends and resumes. Pure.

Rule: two controllers of one job would undo each other's changes for ever, so voda leaves the others' jobs alone.
"""

from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.kinds.base import OPERATORS


def is_foreign(job: JobObject) -> bool:
    """Return whether Kueue or another controller runs the job, so that voda must not."""
    managed_by = job.spec.run_policy.managed_by or ""
    return bool(job.metadata.labels.get(well_known.KUEUE_QUEUE)) or (managed_by != "" and managed_by not in OPERATORS)
