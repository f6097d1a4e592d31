"""What a kind of job is to voda: a class; and a manifest of that kind, as far as voda reads it: an instance.

Rule: whatever differs between kinds is asked of the class or of the instance; no other code compares names of kinds.
Checks refuse only what would fail later; what is merely ignored gets a warning.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, cast

from msgspec import Struct, convert

from voda.domain.errors import InvalidField
from voda.domain.job import MOST_REPLICAS, JobSpec
from voda.kinds.pod_template import (
    ContainerTemplate,
    JobMetadata,
    RoleTemplate,
    RunPolicyFields,
    TorchElasticPolicy,
)

OPERATORS: Final = (
    "kubeflow.org/mpi-operator",
    "kubeflow.org/training-operator",
    "kubernetes.io/job-controller",
    "jobset.sigs.k8s.io/jobset-controller",
)
"""Values of managedBy that leave a job to its own operator."""

BIGGEST: Final = 2**31 - 1
CLEAN_POD_POLICIES: Final = ("None", "Running", "All")


class FieldWarning(Struct, frozen=True, kw_only=True):
    """A field of a manifest that a cluster ignores or changes; the submit always warns of it."""

    field: str
    """Path, e.g. spec.mpiReplicaSpecs.Worker.template.spec.containers[0].image."""
    message: str


class ConvertedManifest(Struct, frozen=True):
    """A manifest in another version of its kind."""

    manifest: Mapping[str, Any]
    warnings: tuple[FieldWarning, ...] = ()


class OwnBounds(Struct, frozen=True):
    """Bounds that a kind has fields of its own for, with the paths of those fields."""

    min_replicas: int
    min_path: str
    max_replicas: int
    max_path: str


class KindSpec(Struct, frozen=True, rename="camel", kw_only=True):
    """The part of `spec` that all kinds share."""

    run_policy: RunPolicyFields | None = None


class JobManifest(Struct, frozen=True, rename="camel", kw_only=True):
    """A manifest of one kind; the class is the kind."""

    name: ClassVar[str]
    """As the field `kind` has it."""
    plural: ClassVar[str]
    """As the API server's paths have it."""
    versions: ClassVar[tuple[str, ...]]
    """apiVersions; the first one is preferred where a cluster serves several."""
    installed_by: ClassVar[str] = "its operator"
    """What has to be installed in a cluster so that it serves the kind."""
    replica_specs: ClassVar[str]
    """Field of `spec` that holds the roles; empty: there is only one, at `only_role`."""
    only_role: ClassVar[tuple[str | int, ...]] = ()
    """Where within `spec` the only role is; empty: it is `spec` itself."""
    run_policy_field: ClassVar[str] = "runPolicy"
    """Field of `spec` that holds suspend and the limits of a run; empty: `spec` itself does."""
    replicas_field: ClassVar[str] = "replicas"
    """Field of a role that says how many replicas it has."""
    role_names: ClassVar[tuple[str, ...]]
    placed_roles: ClassVar[tuple[str, ...]]
    """Roles whose pods are replicas: voda counts and places them. The first role has replica 0, the last is resized."""
    has_anchor: ClassVar[bool] = False
    """Whether all workers begin anew when worker 0 does, so that it is not moved without need."""
    has_lasting_success: ClassVar[bool] = False
    """Whether a replica that succeeded never runs again, while others of its job go on."""
    is_run_by_child: ClassVar[bool] = False
    """Whether its controller makes a Job of it, whose pods are the replicas."""
    container_name: ClassVar[str] = ""
    """Name by which the operator finds the container that trains; empty: any name will do."""
    local_launch: ClassVar[Literal["mpi", "torch"] | None] = None
    """How one machine starts the replicas: by a launcher, or each as a torch agent. None: it cannot."""
    local_roles: ClassVar[tuple[str, ...]] = ()
    cluster_variables: ClassVar[frozenset[str]] = frozenset()
    """Variables about the other replicas, which one machine sets itself, whatever the manifest says."""
    index_variable: ClassVar[str] = ""
    """Variable with the index of a replica, which Kubernetes sets; empty: none."""
    processes_field: ClassVar[str] = "spec"
    """Field that says how many processes one replica starts."""

    api_version: str
    kind: str
    metadata: JobMetadata
    spec: KindSpec

    @property
    @abstractmethod
    def roles(self) -> dict[str, RoleTemplate]:
        """Return the roles that the manifest has, in the order of role_names."""

    @property
    def resized_role(self) -> str:
        """The role whose number of pods voda changes, or the only placed role that there is."""
        return next((role for role in reversed(self.placed_roles) if role in self.roles), self.placed_roles[-1])

    @property
    def main_container_name(self) -> str:
        """Name of the container that trains; empty: the first one does."""
        return self.container_name

    @property
    def is_rigid(self) -> bool:
        """Whether it has one replica, and can have no other number."""
        return False

    @property
    def processes(self) -> int | None:
        """Processes that one replica starts; None: one for each of its GPUs."""
        return 1

    @property
    def restart_policies(self) -> tuple[str, ...]:
        """The values that restartPolicy of a role may have."""
        return ("Always", "OnFailure", "Never", "ExitCode")

    @property
    def is_v2(self) -> bool:
        """Whether it is mpi-operator's v2beta1, whose launcher reaches workers by the names of a Service."""
        return False

    @property
    def always_retries(self) -> bool:
        """Whether a failure is tried again whatever restartPolicy says, up to backoffLimit."""
        return False

    def path(self, role: str) -> str:
        parts = (self.replica_specs, role) if self.replica_specs else self.only_role
        return "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)

    def main_container(self, role: str) -> tuple[int, ContainerTemplate]:
        """Return the container of a role that trains, and its index."""
        containers = self.roles[role].template.spec.containers
        name = self.main_container_name
        return next(((index, each) for index, each in enumerate(containers) if each.name == name), (0, containers[0]))

    def replica_count(self) -> int:
        counts = [role.replicas for name, role in self.roles.items() if name in self.placed_roles]
        return sum(1 if count is None else count for count in counts)

    def default_restart_policy(self, role: str) -> str:
        """Return the operator's restartPolicy of a role that names none."""
        return "Never"

    def own_bounds(self) -> OwnBounds | None:
        """Return the bounds that the kind's own fields set; None without such fields."""
        return None

    def elastic_policy(self) -> TorchElasticPolicy | None:
        """Return elasticPolicy with both bounds, as the operator completes it; None without elasticPolicy."""
        return None

    def check(self) -> None:
        """Raise InvalidField on the first of the kind's own fields that cannot be used."""

    def warnings(self, spec: Mapping[str, Any]) -> Iterator[FieldWarning]:
        """Yield the kind's own fields that voda ignores on every cluster; `spec` is as the user wrote it."""
        yield from ()

    def local_warnings(self, spec: Mapping[str, Any]) -> Iterator[FieldWarning]:
        """Yield the kind's own fields that one machine ignores; see `warnings`."""
        yield from ()

    def kubernetes_warnings(self, converted: Mapping[str, Any], job: JobSpec) -> Iterator[FieldWarning]:
        """Yield what voda changes of the kind's own fields; `converted` is in the version that the cluster serves."""
        yield from ()

    @classmethod
    def in_version(cls, manifest: Mapping[str, Any], api_version: str) -> ConvertedManifest:
        """Return an accepted manifest in another version of this kind; the manifest itself stays as it is.

        Raises:
            InvalidField: the kind has no such version.
        """
        if manifest["apiVersion"] != api_version:
            raise InvalidField("apiVersion", f"apiVersion: expected {api_version}, got {manifest['apiVersion']}")
        return ConvertedManifest(manifest)


def replicas_path(job: JobManifest, role: str) -> str:
    """Return the path of what says how many replicas a role has."""
    return f"{job.path(role)}.{job.replicas_field}"


def size_path(job: JobManifest) -> str:
    """Return the path of what says how many replicas a job has."""
    roles = job.placed_roles
    return replicas_path(job, roles[0]) if len(roles) == 1 else f"spec.{job.replica_specs}"


def run_policy_path(kind: JobManifest | type[JobManifest]) -> str:
    """Return the path of what holds suspend and the limits of a run."""
    return f"spec.{kind.run_policy_field}".removesuffix(".")


def run_policy(job: JobManifest) -> RunPolicyFields:
    """Return the limits of a run."""
    held = job.spec.run_policy if job.run_policy_field else job.spec
    return RunPolicyFields() if held is None else convert(held, RunPolicyFields, from_attributes=True)


def run_policy_mapping(kind: JobManifest | type[JobManifest], spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the mapping with suspend and the limits of a run, of a `spec` as it is written."""
    return (spec.get(kind.run_policy_field) or {}) if kind.run_policy_field else spec


def role_mappings(kind: JobManifest | type[JobManifest], spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return role -> the mapping with its template, of a `spec` as it is written."""
    if kind.replica_specs:
        return cast(Mapping[str, Any], spec[kind.replica_specs])
    role: Any = spec
    for part in kind.only_role:
        role = role[part]
    return {kind.role_names[0]: role}


def field_warnings(value: object, path: str, messages: Mapping[str, str]) -> Iterator[FieldWarning]:
    """Yield a warning for each field of a mapping that is not empty and has a message."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if item and name in messages:
                yield FieldWarning(field=f"{path}.{name}", message=messages[name])


def refuse_unusable(job: JobManifest) -> None:
    """Raise InvalidField on the first field with which no process could start."""
    job.check()
    for name, role in job.roles.items():
        _check_role(job, name, role)
    _check_run_policy(run_policy(job), run_policy_path(job))


def refuse_outside(field: str, value: int | None, least: int, most: int) -> None:
    """Raise InvalidField where a value is there and out of bounds."""
    if value is not None and not least <= value <= most:
        raise InvalidField(field, f"{field}: expected {least} to {most}, got {value}")


def refuse_other(field: str, value: str | None, allowed: Sequence[str]) -> None:
    """Raise InvalidField where a value is there and none of those allowed."""
    if value is not None and value not in allowed:
        raise InvalidField(field, f"{field}: expected one of {', '.join(allowed)}, got {value[:60]!r}")


def refuse_several(path: str, role: RoleTemplate | None) -> None:
    """Raise InvalidField where a role that has one pod asks for another number."""
    if role is not None and role.replicas not in (None, 1):
        field = f"{path}.replicas"
        raise InvalidField(field, f"{field}: expected 1, got {role.replicas}")


def _check_role(job: JobManifest, name: str, role: RoleTemplate) -> None:
    path = job.path(name)
    refuse_outside(replicas_path(job, name), role.replicas, 1, MOST_REPLICAS)
    refuse_other(f"{path}.restartPolicy", role.restart_policy, job.restart_policies)
    pod = role.template.spec
    grace_s = pod.termination_grace_period_seconds
    refuse_outside(f"{path}.template.spec.terminationGracePeriodSeconds", grace_s, 0, BIGGEST)
    for index, container in enumerate(pod.containers):
        if container.env:
            _check_env(f"{path}.template.spec.containers[{index}].env", container)


def _check_env(path: str, container: ContainerTemplate) -> None:
    for index, variable in enumerate(container.env or ()):
        if not variable.name or "=" in variable.name or "\0" in variable.name:
            field = f"{path}[{index}].name"
            raise InvalidField(field, f"{field}: expected a name without '=', got {variable.name[:60]!r}")
        if variable.value and variable.value_from is not None:
            field = f"{path}[{index}].valueFrom"
            raise InvalidField(field, f"{field}: {variable.name[:60]} has a value too: keep one of them")


def _check_run_policy(policy: RunPolicyFields, path: str) -> None:
    refuse_outside(f"{path}.backoffLimit", policy.backoff_limit, 0, BIGGEST)
    refuse_outside(f"{path}.activeDeadlineSeconds", policy.active_deadline_seconds, 1, BIGGEST)
    refuse_outside(f"{path}.ttlSecondsAfterFinished", policy.ttl_seconds_after_finished, 0, BIGGEST)
    refuse_other(f"{path}.cleanPodPolicy", policy.clean_pod_policy, CLEAN_POD_POLICIES)
