"""What adoption and telling need of a cluster: its job objects as mirrored here, and its API server.

Rule: nothing here waits; objects are as old as the mirror is.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.resources.objects import JobObject, Pod
from voda.domain.job import JobSpec

SeenJob = tuple[JobKind, JobObject]
OnJobChange = Callable[[JobKind, JobObject | None, JobObject | None], None]
"""(kind, object before, object now) -> nothing; None = was or is not there."""


class JobObjects(Protocol):
    """The job objects of a cluster."""

    @property
    def api(self) -> Api:
        """Where they are changed."""
        ...

    def jobs(self) -> Iterable[SeenJob]:
        """Return all job objects that are there, of all kinds served."""
        ...

    def subscribe(self, see: OnJobChange) -> None:
        """Have every change of a job object shown to `see`."""
        ...

    def kind_of(self, spec: JobSpec) -> JobKind:
        """Return the kind that runs such a job.

        Raises:
            ActionRefused: the cluster serves none.
        """
        ...

    def pods_of(self, job_id: str) -> Sequence[Pod]:
        """Return the pods of a job's object, as far as they are there."""
        ...
