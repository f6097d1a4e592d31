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


class _Container(_Part, frozen=True):
    env: tuple[_Variable, ...] = ()


class _PodSpec(_Part, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Template(_Part, frozen=True):
    spec: _PodSpec = _PodSpec()


class _JobSpec(_Part, frozen=True):
    template: _Template = _Template()


class _JobStatus(_Part, frozen=True):
    succeeded: int = 0


class LauncherJob(_Part, frozen=True):
    """A Job of batch/v1, trimmed to what tells whether it is outdated."""

    metadata: Metadata
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()

    def is_outdated(self, uid: str) -> bool:
        """Say whether it was made of the templates of an MPIJob as they were before, and has not reached its end.

        Args:
            uid: of the MPIJob, which is suspended; somebody else's Job may bear the name.
        """
        is_own = any(owner.uid == uid for owner in self.metadata.owner_references)
        # By its name alone: what a container sets itself wins.
        told = {variable.name for each in self.spec.template.spec.containers for variable in each.env}
        return is_own and not self.status.succeeded and names.JOB_ID_VARIABLE not in told
