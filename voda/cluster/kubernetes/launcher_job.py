"""The Job that mpi-operator makes of a launcher's template: at once, even of a suspended MPIJob, and never changed.

Rule: pure. One that was made before voda made the MPIJob ready runs a program that is not told whose it is.
"""

from msgspec import Struct

from voda.cluster.kubernetes import names
from voda.cluster.kubernetes.objects import Metadata


class _Part(Struct, frozen=True, kw_only=True):
    """Base: unknown fields are ignored."""


class _Variable(_Part, frozen=True):
    name: str = ""
    value: str = ""


class _Container(_Part, frozen=True):
    env: tuple[_Variable, ...] = ()


class _PodSpec(_Part, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Template(_Part, frozen=True):
    spec: _PodSpec = _PodSpec()


class _JobSpec(_Part, frozen=True):
    template: _Template = _Template()


class _JobStatus(_Part, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class LauncherJob(_Part, frozen=True):
    """A Job of batch/v1, trimmed to what tells whether it is outdated."""

    metadata: Metadata
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()

    def is_outdated(self, uid: str, job_id: str) -> bool:
        """Say whether it was made of the templates of an MPIJob as they were before, and has done nothing yet.

        Args:
            uid: of the MPIJob; somebody else's Job may bear the name.
            job_id: that its program should be told.
        """
        is_own = any(owner.uid == uid for owner in self.metadata.owner_references)
        has_begun = self.status.active or self.status.succeeded or self.status.failed
        told = _Variable(name=names.JOB_ID_VARIABLE, value=job_id)
        return is_own and not has_begun and not any(told in each.env for each in self.spec.template.spec.containers)
