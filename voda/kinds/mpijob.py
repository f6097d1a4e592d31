"""MPIJob: a launcher that starts processes on its workers, which only wait for it.

Versions: v2beta1 is mpi-operator's, and its launcher is a Kubernetes Job; v1 is training-operator's, and its launcher
is a pod. Both share a name in a cluster, so it serves one of them, and the other is converted: a field with an
equivalent keeps its meaning, and a field without one is named in a warning, and never dropped silently.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal

from msgspec import Struct

from voda.domain.job import JobSpec
from voda.kinds.base import (
    CLEAN_POD_POLICIES,
    ConvertedManifest,
    FieldWarning,
    JobManifest,
    KindSpec,
    field_warnings,
    refuse_other,
    refuse_outside,
    refuse_several,
)
from voda.kinds.pod_template import DEFAULT_BACKOFF_LIMIT, MOST_GPUS, RoleTemplate

V1: Final = "kubeflow.org/v1"
V2: Final = "kubeflow.org/v2beta1"
_SPECS: Final = "spec.mpiReplicaSpecs"
# Fields of v2beta1 that v1 does not know -> their defaults there, and the warning about any other value.
_ONLY_V2: Final = {
    "sshAuthMountPath": ("/root/.ssh", "not used: the v1 operator reaches workers by kubectl exec, not by ssh"),
    "runLauncherAsWorker": (False, "has no equivalent in v1: the launcher only launches"),
    "launcherCreationPolicy": ("AtStartup", "has no equivalent in v1: the launcher starts with the workers"),
    "mpiImplementation": ("OpenMPI", "has no equivalent in v1: the list of hosts is written as Open MPI reads it"),
}

_NOT_LOCAL: Final = {
    "sshAuthMountPath": "not used: the processes of one machine need no ssh",
    "runLauncherAsWorker": "the launcher is no worker here: all processes run on the workers' slots",
}
_ON_KUBERNETES: Final = {
    "runLauncherAsWorker": (
        "the launcher trains too: a plan has a node for it where it asks for GPUs and may go wherever workers may, else"
        " kube-scheduler finds one; each shrink also restarts the last worker that stays"
    ),
}


class MPIReplicas(Struct, frozen=True, rename="pascal"):
    launcher: RoleTemplate
    worker: RoleTemplate


class MPISpec(KindSpec, frozen=True, rename="camel", kw_only=True):
    mpi_replica_specs: MPIReplicas
    slots_per_worker: int | None = None
    clean_pod_policy: str | None = None
    main_container: str | None = None
    mpi_implementation: str | None = None


class MPIJob(JobManifest, frozen=True, rename="camel", kw_only=True):
    name: ClassVar[str] = "MPIJob"
    plural: ClassVar[str] = "mpijobs"
    installed_by: ClassVar[str] = "mpi-operator"
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
        return self.api_version == V2

    @property
    def roles(self) -> dict[str, RoleTemplate]:
        specs = self.spec.mpi_replica_specs
        return {"Launcher": specs.launcher, "Worker": specs.worker}

    @property
    def main_container_name(self) -> str:
        return self.spec.main_container or ""

    @property
    def processes(self) -> int:
        return self.spec.slots_per_worker or 1

    @property
    def restart_policies(self) -> tuple[str, ...]:
        return ("Never", "OnFailure") if self.is_v2 else super().restart_policies

    @property
    def always_retries(self) -> bool:
        """Whether the launcher is a Kubernetes Job, which tries again whatever restartPolicy of its pod says."""
        return self.is_v2

    def default_restart_policy(self, role: str) -> str:
        return "OnFailure" if self.is_v2 and role == "Launcher" else "Never"

    def check(self) -> None:
        refuse_outside("spec.slotsPerWorker", self.spec.slots_per_worker, 1, MOST_GPUS)
        refuse_other("spec.cleanPodPolicy", self.spec.clean_pod_policy, CLEAN_POD_POLICIES)
        refuse_other("spec.mpiImplementation", self.spec.mpi_implementation, ("OpenMPI", "Intel", "MPICH"))
        refuse_several(self.path("Launcher"), self.roles["Launcher"])

    def local_warnings(self, spec: Mapping[str, Any]) -> Iterator[FieldWarning]:
        yield from field_warnings(spec, "spec", _NOT_LOCAL)
        if self.spec.mpi_implementation not in (None, "OpenMPI"):
            message = "the list of hosts is written as Open MPI reads it; leave out -f, as MPICH's mpiexec needs none"
            yield FieldWarning(field="spec.mpiImplementation", message=message)
        yield from _voda_run_hints(self)

    def kubernetes_warnings(self, converted: Mapping[str, Any], job: JobSpec) -> Iterator[FieldWarning]:
        yield from field_warnings(converted["spec"], "spec", _ON_KUBERNETES)
        yield from _voda_run_hints(self)
        is_v1 = converted["apiVersion"] == V1
        if is_v1 and self.roles["Worker"].restart_policy not in (None, "ExitCode"):
            message = "ExitCode is used: with any other, the operator gives the whole job up for one failed worker"
            yield FieldWarning(field=f"{self.path('Worker')}.restartPolicy", message=message)
        if job.is_elastic:
            yield from self._horovod_hints(has_slots=is_v1)

    @classmethod
    def in_version(cls, manifest: Mapping[str, Any], api_version: str) -> ConvertedManifest:
        if {manifest["apiVersion"], api_version} != {V1, V2}:
            return super().in_version(manifest, api_version)
        found = {**manifest, "apiVersion": api_version, "spec": _copied(manifest["spec"])}
        warnings = _to_v2(found["spec"]) if api_version == V2 else _to_v1(found["spec"])
        return ConvertedManifest(found, tuple(warnings))

    def _horovod_hints(self, *, has_slots: bool) -> Iterator[FieldWarning]:
        """Yield the options of horovodrun that an elastic job needs; a program of any other name may know better."""
        index, line = self.main_container("Launcher")[0], _launcher_line(self)
        if "horovodrun" not in line:
            return
        field = f"{self.path('Launcher')}.template.spec.containers[{index}].command"
        # --slots and --slots-per-host are the same option. Only v1's discover_hosts.sh lists hosts with their slots.
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


def _launcher_line(job: MPIJob) -> str:
    """Return the launcher's words as one line: often the command is one word of a shell's."""
    _, container = job.main_container("Launcher")
    return " ".join((*(container.command or ()), *(container.args or ())))


def _voda_run_hints(job: MPIJob) -> Iterator[FieldWarning]:
    """Yield that `voda run` needs another MPI than the manifest names."""
    if job.spec.mpi_implementation not in (None, "OpenMPI") and "voda run" in _launcher_line(job):
        message = f"voda run starts programs by Open MPI's mpirun, not by that of {job.spec.mpi_implementation}"
        yield FieldWarning(field="spec.mpiImplementation", message=message)


def _copied(spec: Mapping[str, Any]) -> dict[str, Any]:
    roles = {role: dict(each) for role, each in spec["mpiReplicaSpecs"].items() if isinstance(each, Mapping)}
    return {**spec, "mpiReplicaSpecs": roles, "runPolicy": dict(spec.get("runPolicy") or {})}


def _to_v2(spec: dict[str, Any]) -> Iterator[FieldWarning]:
    policy, roles = spec["runPolicy"], spec["mpiReplicaSpecs"]
    if clean := spec.pop("cleanPodPolicy", None):
        policy.setdefault("cleanPodPolicy", clean)
    if spec.pop("mainContainer", None):
        message = "has no equivalent in v2beta1: the first container of a worker runs sshd"
        yield FieldWarning(field="spec.mainContainer", message=message)
    launcher = roles["Launcher"].get("restartPolicy") or "Never"
    if launcher == "Never":
        # In v1 a launcher that fails is the end; a v2beta1 launcher is a Job, which is tried again 6 times.
        policy["backoffLimit"] = 0
    roles["Launcher"]["restartPolicy"] = "Never" if launcher == "Never" else "OnFailure"
    if launcher in ("Always", "ExitCode"):
        message = f"{launcher} has no equivalent in v2beta1: OnFailure is used"
        yield FieldWarning(field=f"{_SPECS}.Launcher.restartPolicy", message=message)
    worker = roles["Worker"].get("restartPolicy") or "Never"
    # What ExitCode makes of a worker, voda makes of any: a failed one is made anew.
    roles["Worker"]["restartPolicy"] = "OnFailure" if worker in ("Always", "OnFailure") else "Never"
    yield FieldWarning(
        field="apiVersion", message=f"runs as {V2}: workers are reached by ssh, so images need sshd and ssh"
    )
    yield from _with_sshd(roles["Worker"])


def _to_v1(spec: dict[str, Any]) -> Iterator[FieldWarning]:
    policy, roles = spec["runPolicy"], spec["mpiReplicaSpecs"]
    for name, (default, message) in _ONLY_V2.items():
        if spec.pop(name, None) not in (None, default):
            yield FieldWarning(field=f"spec.{name}", message=message)
    if policy.get("backoffLimit") is None:
        policy["backoffLimit"] = DEFAULT_BACKOFF_LIMIT
    # A v2beta1 launcher is tried again whatever its restartPolicy, unless backoffLimit forbids it.
    roles["Launcher"]["restartPolicy"] = "OnFailure" if policy["backoffLimit"] else "Never"
    yield FieldWarning(
        field="apiVersion", message=f"runs as {V1}: workers are reached by kubectl exec, and named by pod"
    )


def _with_sshd(worker: dict[str, Any]) -> Iterator[FieldWarning]:
    """Let a worker that only sleeps, as workers of v1 do, run sshd."""
    pod = dict(worker["template"]["spec"])
    first = dict(pod["containers"][0])
    words = [str(word) for name in ("command", "args") for word in first.get(name) or ()]
    if not any("sleep" in word for word in words) or any("sshd" in word for word in words):
        return
    first.pop("command", None)
    first.pop("args", None)
    pod["containers"] = [first, *pod["containers"][1:]]
    worker["template"] = {**worker["template"], "spec": pod}
    field = f"{_SPECS}.Worker.template.spec.containers[0].command"
    yield FieldWarning(field=field, message="left out: a worker that sleeps cannot be reached by ssh, so it runs sshd")
