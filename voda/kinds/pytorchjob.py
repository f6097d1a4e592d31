"""PyTorchJob of training-operator: torch agents that meet at the first replica, a Master or worker 0.

Rule: a Master is replica 0 and trains like the workers.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.errors import InvalidField
from voda.domain.job import JobSpec
from voda.kinds.base import (
    BIGGEST,
    FieldWarning,
    JobManifest,
    KindSpec,
    OwnBounds,
    field_warnings,
    refuse_other,
    refuse_outside,
    refuse_several,
)
from voda.kinds.launcher import accelerate_warnings
from voda.kinds.pod_template import MOST_GPUS, RoleTemplate, TorchElasticPolicy

_IGNORED: Final = {"metrics": "there is no autoscaler by metrics: voda's policy decides on the size"}
_NOT_LOCAL: Final = {
    "standalone": "not read: the agents of all replicas meet at one port of this machine",
    "maxRestarts": "not read: on one machine voda starts all agents again itself, as backoffLimit says",
}


class TorchReplicas(Struct, frozen=True, rename="pascal"):
    master: RoleTemplate | None = None
    worker: RoleTemplate | None = None


class TorchSpec(KindSpec, frozen=True, rename="camel", kw_only=True):
    pytorch_replica_specs: TorchReplicas
    nproc_per_node: str | int | None = None
    elastic_policy: TorchElasticPolicy | None = None


class PyTorchJob(JobManifest, frozen=True, rename="camel", kw_only=True):
    name: ClassVar[str] = "PyTorchJob"
    plural: ClassVar[str] = "pytorchjobs"
    installed_by: ClassVar[str] = "training-operator"
    versions: ClassVar[tuple[str, ...]] = ("kubeflow.org/v1",)
    replica_specs: ClassVar[str] = "pytorchReplicaSpecs"
    role_names: ClassVar[tuple[str, ...]] = ("Master", "Worker")
    placed_roles: ClassVar[tuple[str, ...]] = ("Master", "Worker")
    has_anchor: ClassVar[bool] = True
    container_name: ClassVar[str] = "pytorch"
    local_launch: ClassVar[Literal["mpi", "torch"] | None] = "torch"
    local_roles: ClassVar[tuple[str, ...]] = ("Master", "Worker")
    processes_field: ClassVar[str] = "spec.nprocPerNode"

    spec: TorchSpec

    @property
    def roles(self) -> dict[str, RoleTemplate]:
        specs = self.spec.pytorch_replica_specs
        found = {"Master": specs.master, "Worker": specs.worker}
        return {name: role for name, role in found.items() if role is not None}

    @property
    def processes(self) -> int | None:
        """Processes that one agent starts; None (auto, cpu or gpu): one for each of its GPUs."""
        processes = self._nproc_per_node()
        return int(processes) if processes.isdecimal() else None

    def default_restart_policy(self, role: str) -> str:
        return "OnFailure"

    def own_bounds(self) -> OwnBounds | None:
        elastic = self.spec.elastic_policy
        if elastic is None or (elastic.min_replicas is None and elastic.max_replicas is None):
            return None
        least, most = elastic_bounds(elastic.min_replicas, elastic.max_replicas, 1)
        return OwnBounds(
            min_replicas=least,
            min_path=f"spec.elasticPolicy.{'maxReplicas' if elastic.min_replicas is None else 'minReplicas'}",
            max_replicas=most,
            max_path=f"spec.elasticPolicy.{'minReplicas' if elastic.max_replicas is None else 'maxReplicas'}",
        )

    def elastic_policy(self) -> TorchElasticPolicy | None:
        elastic = self.spec.elastic_policy
        if elastic is None:
            return None
        least, most = elastic_bounds(elastic.min_replicas, elastic.max_replicas, self.replica_count())
        return replace(elastic, min_replicas=least, max_replicas=most)

    def check(self) -> None:
        if not self.roles:
            field = self.path("Worker")
            raise InvalidField(field, f"{field} is missing: a PyTorchJob needs a Worker or a Master")
        refuse_several(self.path("Master"), self.roles.get("Master"))
        processes = self._nproc_per_node()
        is_count = processes.isascii() and processes.isdecimal() and len(processes) < 6
        if processes not in ("auto", "cpu", "gpu") and not (is_count and 1 <= int(processes) <= MOST_GPUS):
            raise InvalidField(
                "spec.nprocPerNode",
                f"spec.nprocPerNode: expected auto, cpu, gpu or 1 to {MOST_GPUS}, got {processes[:60]!r}",
            )
        if (elastic := self.spec.elastic_policy) is not None:
            refuse_other("spec.elasticPolicy.rdzvBackend", elastic.rdzv_backend, ("c10d", "etcd", "etcd-v2"))
            refuse_outside("spec.elasticPolicy.rdzvPort", elastic.rdzv_port, 1, 65_535)
            refuse_outside("spec.elasticPolicy.maxRestarts", elastic.max_restarts, 0, BIGGEST)

    def warnings(self, spec: Mapping[str, Any]) -> Iterator[FieldWarning]:
        yield from field_warnings(spec.get("elasticPolicy"), "spec.elasticPolicy", _IGNORED)

    def local_warnings(self, spec: Mapping[str, Any]) -> Iterator[FieldWarning]:
        yield from field_warnings(spec.get("elasticPolicy"), "spec.elasticPolicy", _NOT_LOCAL)

    def kubernetes_warnings(self, converted: Mapping[str, Any], job: JobSpec) -> Iterator[FieldWarning]:
        elastic = self.spec.elastic_policy
        if not job.is_elastic:
            return
        yield from accelerate_warnings(self)
        if elastic is None:
            sizes = f"{job.min_replicas} to {job.max_replicas} replicas"
            message = f"added, for {sizes}: without it no agent would hear of a resize"
            yield FieldWarning(field="spec.elasticPolicy", message=message)
            return
        if "Master" in self.roles and elastic.rdzv_host is None and elastic.rdzv_backend in (None, "c10d"):
            message = "set to the Master: the first worker, where agents meet by default, may not be there"
            yield FieldWarning(field="spec.elasticPolicy.rdzvHost", message=message)

    def _nproc_per_node(self) -> str:
        """Return the processes each agent starts: auto, cpu, gpu or a number."""
        elastic = self.spec.elastic_policy
        deprecated = elastic.n_proc_per_node if elastic is not None else None
        return str(self.spec.nproc_per_node or deprecated or "auto")


def elastic_bounds(least: int | None, most: int | None, replicas: int) -> tuple[int, int]:
    """Return least and most replicas of an elasticPolicy: a missing one is as the other, or else `replicas`."""
    if least is None:
        least = replicas if most is None else most
    return least, least if most is None else most
