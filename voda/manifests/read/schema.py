"""The parts of an MPIJob and a PyTorchJob that voda reads, typed.

Rule: a field of the wrong type is refused with its path; a field that voda does not read is left alone.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from voda.domain.errors import InvalidField
from voda.manifests.read.type_errors import shape_error

Quantity = int | float | str


class FieldRef(Struct, frozen=True, rename="camel"):
    """Where a variable's value comes from: a field of the pod."""

    field_path: str = ""


class ValueFrom(Struct, frozen=True, rename="camel"):
    """Where a variable's value comes from; only fieldRef is read."""

    field_ref: FieldRef | None = None


class EnvVar(Struct, frozen=True, rename="camel"):
    """One variable."""

    name: str
    value: str | None = None
    value_from: ValueFrom | None = None


class Resources(Struct, frozen=True):
    """What a container may use."""

    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class Container(Struct, frozen=True, rename="camel"):
    """One container."""

    name: str = ""
    image: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None
    working_dir: str | None = None
    resources: Resources | None = None


class PodSpec(Struct, frozen=True, rename="camel"):
    """The pod of a replica."""

    containers: Annotated[tuple[Container, ...], Meta(min_length=1)]
    node_selector: dict[str, str] | None = None
    termination_grace_period_seconds: int | None = None
    priority_class_name: str | None = None


class Template(Struct, frozen=True):
    """A replica's pod template."""

    spec: PodSpec


class Replica(Struct, frozen=True, rename="camel"):
    """One role: its pods and how many."""

    template: Template
    replicas: int | None = None
    restart_policy: str | None = None


class Metadata(Struct, frozen=True, rename="camel"):
    """Names, labels and annotations."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Policy(Struct, frozen=True, rename="camel"):
    """runPolicy."""

    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    clean_pod_policy: str | None = None
    suspend: bool | None = None


class MPIReplicas(Struct, frozen=True, rename="pascal"):
    """mpiReplicaSpecs."""

    launcher: Replica
    worker: Replica


class MPISpec(Struct, frozen=True, rename="camel"):
    """spec of an MPIJob."""

    mpi_replica_specs: MPIReplicas
    slots_per_worker: int | None = None
    run_policy: Policy | None = None
    clean_pod_policy: str | None = None
    main_container: str | None = None
    mpi_implementation: str | None = None


class RdzvConf(Struct, frozen=True):
    """One setting of the rendezvous."""

    key: str = ""
    value: str = ""


class Elastic(Struct, frozen=True, rename="camel"):
    """elasticPolicy."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    rdzv_backend: str | None = None
    rdzv_host: str | None = None
    rdzv_port: int | None = None
    rdzv_id: str | None = None
    rdzv_conf: tuple[RdzvConf, ...] | None = None
    standalone: bool | None = None
    max_restarts: int | None = None
    n_proc_per_node: int | None = None


class TorchReplicas(Struct, frozen=True, rename="pascal"):
    """pytorchReplicaSpecs."""

    master: Replica | None = None
    worker: Replica | None = None


class TorchSpec(Struct, frozen=True, rename="camel"):
    """spec of a PyTorchJob."""

    pytorch_replica_specs: TorchReplicas
    nproc_per_node: str | int | None = None
    elastic_policy: Elastic | None = None
    run_policy: Policy | None = None


class MPIJob(Struct, frozen=True, rename="camel"):
    """An MPIJob of either version."""

    metadata: Metadata
    spec: MPISpec
    api_version: str
    kind: str

    @property
    def has_v2(self) -> bool:
        """Whether mpi-operator's v2beta1 is meant, not training-operator's v1."""
        return self.api_version.endswith("/v2beta1")

    @property
    def replica_specs(self) -> str:
        """Path of the roles."""
        return "spec.mpiReplicaSpecs"

    @property
    def roles(self) -> dict[str, Replica]:
        """Return the roles as the manifest names them."""
        specs = self.spec.mpi_replica_specs
        return {"Launcher": specs.launcher, "Worker": specs.worker}


class PyTorchJob(Struct, frozen=True, rename="camel"):
    """A PyTorchJob."""

    metadata: Metadata
    spec: TorchSpec
    api_version: str
    kind: str

    @property
    def has_v2(self) -> bool:
        """There is only v1."""
        return False

    @property
    def replica_specs(self) -> str:
        """Path of the roles."""
        return "spec.pytorchReplicaSpecs"

    @property
    def roles(self) -> dict[str, Replica]:
        """Return the roles as the manifest names them, the one that comes first in front."""
        specs = self.spec.pytorch_replica_specs
        found = {"Master": specs.master, "Worker": specs.worker}
        return {name: role for name, role in found.items() if role is not None}


Shape = MPIJob | PyTorchJob

_KINDS: Mapping[str, tuple[type[Shape], tuple[str, ...]]] = {
    "MPIJob": (MPIJob, ("kubeflow.org/v2beta1", "kubeflow.org/v1")),
    "PyTorchJob": (PyTorchJob, ("kubeflow.org/v1",)),
}


def shape_of(manifest: Mapping[str, Any]) -> Shape:
    """Return the typed view of a manifest.

    Raises:
        InvalidField: another kind or version, or a field that is missing or of the wrong type.
    """
    kind = manifest.get("kind")
    shape, versions = _KINDS.get(kind, (None, ())) if isinstance(kind, str) else (None, ())
    if shape is None:
        raise InvalidField("kind", f"kind: expected one of {', '.join(_KINDS)}, got {_brief(kind)}")
    version = manifest.get("apiVersion")
    if version not in versions:
        expected = " or ".join(versions)
        raise InvalidField("apiVersion", f"apiVersion of kind {kind}: expected {expected}, got {_brief(version)}")
    try:
        return msgspec.convert(manifest, shape)
    except msgspec.ValidationError as error:
        raise shape_error(manifest, str(error)) from None


def _brief(value: object) -> str:
    return "none" if value is None else repr(value)[:80]
