"""What registration and status reports need of a cluster: its job objects as they are mirrored, and its API server.

Rule: nothing here waits; objects are as old as the mirror is.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.mirror import OnJobChange
from voda.cluster.kubernetes.resources.objects import Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.domain.job import JobSpec


class JobObjects(Protocol):
    """The job objects of a cluster; see ClusterMirror."""

    @property
    def api(self) -> Api:
        """Where they are changed."""

    def jobs(self) -> Iterable[KubeJob]:
        """Return all job objects that are there, of all kinds served."""

    def subscribe(self, on_change: OnJobChange) -> None:
        """Call `on_change` at every change of a job object."""

    def kind_of(self, spec: JobSpec) -> JobKind:
        """Return the kind that runs such a job.

        Raises:
            ActionRefused: the cluster serves none.
        """

    def pods_of(self, job_id: str) -> Sequence[Pod]:
        """Return the pods of a job's object, as far as they are there."""
