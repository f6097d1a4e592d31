"""Whose job an object is: voda's own, or one that another controller suspends and resumes. Pure.

Rule: two that suspend the same job would undo each other's doing for ever, so voda leaves such jobs alone.
"""

from typing import Final

from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import JobObject

OPERATORS: Final = frozenset({"kubeflow.org/mpi-operator", "kubeflow.org/training-operator"})
"""Values of managedBy that leave a job to its own operator."""


def is_foreign(job: JobObject) -> bool:
    """Say whether Kueue or another controller runs the job, so that voda must not."""
    managed_by = job.spec.run_policy.managed_by or ""
    return bool(job.metadata.labels.get(well_known.KUEUE_QUEUE)) or (managed_by != "" and managed_by not in OPERATORS)
