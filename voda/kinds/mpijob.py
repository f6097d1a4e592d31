"""MPIJob: a launcher that starts processes on its workers, which only wait for it.

Versions: v2beta1 is mpi-operator's, and its launcher is a Kubernetes Job; v1 is training-operator's, and its launcher
is a pod.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal

from msgspec import Struct

from voda.domain.job import JobSpec
from voda.kinds.base import ConvertedManifest, FieldWarning, JobManifest, KindSpec, field_warnings
from voda.kinds.mpijob_versions import V1, V2, in_other_version
from voda.kinds.pod_template import MOST_GPUS, RoleTemplate
from voda.kinds.validation import CLEAN_POD_POLICIES, refuse_other, refuse_outside, refuse_several

_NOT_LOCAL: Final = {
    "sshAuthMountPath": "not used: the processes of one machine need no ssh",
    "runLauncherAsWorker": "the launcher is no worker here: all processes run on the workers' slots",
}
_ON_KUBERNETES: Final = {
    "runLauncherAsWorker": (
        "the launcher trains too, but voda neither places nor counts it: kube-scheduler finds a node for it, and the"
        " GPUs it asks for look like another job's; each shrink also restarts the last worker that stays"
    ),
}


class MPIReplicas(Struct, frozen=True, rename="pascal"):
    """mpiReplicaSpecs."""

    launcher: RoleTemplate
    worker: RoleTemplate


class MPISpec(KindSpec, frozen=True, rename="camel", kw_only=True):
    """spec of an MPIJob."""

    mpi_replica_specs: MPIReplicas
    slots_per_worker: int | None = None
    clean_pod_policy: str | None = None
    main_container: str | None = None
    mpi_implementation: str | None = None


class MPIJob(JobManifest, frozen=True, rename="camel", kw_only=True):
    """An MPIJob of either version."""

    name: ClassVar[str] = "MPIJob"
    plural: ClassVar[str] = "mpijobs"
    versions: ClassVar[tuple[str, ...]] = (V2, V1)
    replica_specs: ClassVar[str] = "mpiReplicaSpecs"
    role_names: ClassVar[tuple[str, ...]] = ("Launcher", "Worker")
    placed_roles: ClassVar[tuple[str, ...]] = ("Worker",)
    local_launch: ClassVar[Literal["mpi", "torch"] | None] = "mpi"
    local_roles: ClassVar[tuple[str, ...]] = ("Launcher",)
    processes_field: ClassVar[str] = "spec.slotsPerWorker"

    spec: MPISpec

    @property
    def is_v2(self) -> bool:
        """Whether this is mpi-operator's v2beta1, and not training-operator's v1."""
        return self.api_version == V2

    @property
    def roles(self) -> dict[str, RoleTemplate]:
        """Return the launcher and the workers."""
        specs = self.spec.mpi_replica_specs
        return {"Launcher": specs.launcher, "Worker": specs.worker}

    @property
    def main_container_name(self) -> str:
        """Name of the container that trains; empty: the first one does."""
        return self.spec.main_container or ""

    @property
    def processes(self) -> int:
        """Processes that one worker has slots for."""
        return self.spec.slots_per_worker or 1

    @property
    def restart_policies(self) -> tuple[str, ...]:
        """The values that restartPolicy of a role may have."""
        return ("Never", "OnFailure") if self.is_v2 else super().restart_policies

    @property
    def always_retries(self) -> bool:
        """Whether the launcher is a Kubernetes Job, which tries again whatever restartPolicy of its pod says."""
        return self.is_v2

    def default_restart_policy(self, role: str) -> str:
        """Return the operator's restartPolicy of a role that names none."""
        return "OnFailure" if self.is_v2 and role == "Launcher" else "Never"

    def check(self) -> None:
        """Raise InvalidField on the first of an MPIJob's own fields that cannot be used."""
        refuse_outside("spec.slotsPerWorker", self.spec.slots_per_worker, 1, MOST_GPUS)
        refuse_other("spec.cleanPodPolicy", self.spec.clean_pod_policy, CLEAN_POD_POLICIES)
        refuse_other("spec.mpiImplementation", self.spec.mpi_implementation, ("OpenMPI", "Intel", "MPICH"))
        refuse_several(self.path("Launcher"), self.roles["Launcher"])

    def local_warnings(self, spec: Mapping[str, Any]) -> Iterator[FieldWarning]:
        """Yield the fields of an MPIJob that one machine ignores."""
        yield from field_warnings(spec, "spec", _NOT_LOCAL)
        if self.spec.mpi_implementation not in (None, "OpenMPI"):
            message = "the list of hosts is written as Open MPI reads it"
            yield FieldWarning(field="spec.mpiImplementation", message=message)

    def kubernetes_warnings(self, converted: Mapping[str, Any], job: JobSpec) -> Iterator[FieldWarning]:
        """Yield what voda changes of an MPIJob on Kubernetes, and what the launcher of an elastic one lacks."""
        yield from field_warnings(converted["spec"], "spec", _ON_KUBERNETES)
        is_v1 = converted["apiVersion"] == V1
        if is_v1 and self.roles["Worker"].restart_policy not in (None, "ExitCode"):
            message = "ExitCode is used: with any other, the operator gives the whole job up for one failed worker"
            yield FieldWarning(field=f"{self.path('Worker')}.restartPolicy", message=message)
        if job.is_elastic:
            yield from self._horovod_hints(has_slots=is_v1)

    @classmethod
    def in_version(cls, manifest: Mapping[str, Any], api_version: str) -> ConvertedManifest:
        """Return an accepted manifest in v1 or v2beta1."""
        if {manifest["apiVersion"], api_version} == {V1, V2}:
            return in_other_version(manifest, api_version)
        return super().in_version(manifest, api_version)

    def _horovod_hints(self, *, has_slots: bool) -> Iterator[FieldWarning]:
        """Yield the options of horovodrun that an elastic job needs; a program of any other name may know better.

        Args:
            has_slots: whether the operator's discover_hosts.sh lists hosts with their slots.
        """
        index, container = self.main_container("Launcher")
        # Often it is one word of a shell's.
        line = " ".join((*(container.command or ()), *(container.args or ())))
        if "horovodrun" not in line:
            return
        field = f"{self.path('Launcher')}.template.spec.containers[{index}].command"
        # --slots and --slots-per-host are the same option.
        if not has_slots and "--slots" not in line:
            option = f"--slots-per-host {self.processes}"
            message = f"add {option} to horovodrun: discover_hosts.sh lists hosts without their slots"
            yield FieldWarning(field=field, message=message)
        if "--blacklist-cooldown-range" not in line:
            message = (
                "add --blacklist-cooldown-range 10 60 to horovodrun: without it a worker that left once is never used"
                " again"
            )
            yield FieldWarning(field=field, message=message)
