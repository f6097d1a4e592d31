"""Kubernetes objects, trimmed to the fields that voda reads.

Rules: decoding drops all else and keeps equal parts once, so that ten thousand pods cost megabytes; no object changes.
"""

import math
from collections.abc import Collection, Mapping, Set
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Raw, defstruct, field
from msgspec.structs import force_setattr, replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.container_status import ContainerStatus
from voda.cluster.kubernetes.interning import intern_mapping, intern_strings, intern_value
from voda.cluster.kubernetes.kinds.success_policy import SuccessPolicy, indices
from voda.domain.node import Taint
from voda.kinds.pod_template import PodClaim
from voda.kinds.registry import KINDS
from voda.kubernetes_client.metadata import KubeRecord, ObjectName, WatchedObject
from voda.kubernetes_client.paths import api_path

_OURS: Final = ("voda.dev/", "hivedscheduler.microsoft.com/", "elasticgpu.io/", well_known.POD_CLAIM)
"""Prefixes of the annotations of pods, nodes and claims that are kept: those of others are long and not read."""
_SUCCESS: Final = ("Succeeded", "SuccessCriteriaMet", "Complete", "Completed")
"""Conditions by which operators say that a job succeeded; two are a Job's, and the last one is a JobSet's."""


class OwnerReference(KubeRecord, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(ObjectName, frozen=True):
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "labels", intern_strings(self.labels))
        force_setattr(self, "finalizers", intern_value(self.finalizers))
        force_setattr(self, "owner_references", intern_value(self.owner_references))

    @property
    def is_managed(self) -> bool:
        """Whether it has the label by which voda runs it."""
        return self.labels.get(well_known.MANAGED) == "true"

    def keep_ours(self) -> None:
        """Drop the annotations of others; while decoding only."""
        ours = {key: value for key, value in self.annotations.items() if key.startswith(_OURS)}
        force_setattr(self, "annotations", intern_strings(ours))


class OwnObject(KubeRecord, frozen=True):
    """Base of objects of whose annotations voda's own are kept."""

    metadata: ObjectMeta

    def __post_init__(self) -> None:
        self.metadata.keep_ours()


class NodeCondition(KubeRecord, frozen=True):
    type: str
    status: str = ""


class NodeSpec(KubeRecord, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(KubeRecord, frozen=True):
    allocatable: Mapping[str, str] = {}
    conditions: tuple[NodeCondition, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "allocatable", intern_mapping(self.allocatable))
        force_setattr(self, "conditions", intern_value(self.conditions))


class NodeObject(OwnObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ResourceRequirements(KubeRecord, frozen=True):
    """Quantities as written: a string mostly, but a number is legal too."""

    requests: Mapping[str, str | int | float] = {}
    limits: Mapping[str, str | int | float] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "requests", intern_mapping(self.requests))
        force_setattr(self, "limits", intern_mapping(self.limits))


class KubeContainer(KubeRecord, frozen=True):
    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    """Of an init container: Always makes it a sidecar, whose requests add to the containers'."""


class KubePodSpec(KubeRecord, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    preemption_policy: str = ""
    """Never: kube-scheduler makes no room for it."""
    containers: tuple[KubeContainer, ...] = ()
    init_containers: tuple[KubeContainer, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    """Of the pod as a whole, where the server knows that; counts instead of the containers'."""
    overhead: Mapping[str, str | int | float] = {}
    node_selector: Mapping[str, str] = {}
    scheduling_gates: tuple[Mapping[str, Any], ...] = ()
    resource_claims: tuple[PodClaim, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "overhead", intern_mapping(self.overhead))
        force_setattr(self, "node_selector", intern_mapping(self.node_selector))


class KubeCondition(KubeRecord, frozen=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(KubeRecord, frozen=True):
    phase: str = ""
    """Pending, Running, Succeeded or Failed."""
    reason: str = ""
    """Evicted, NodeLost, Preempting, ... of a pod that failed without its program's doing."""
    message: str = ""
    resource_claim_statuses: tuple[PodClaim, ...] = ()
    """The claims that were made for the pod after templates."""
    extended_resource_claim_status: Mapping[str, Any] | None = None
    """Of a pod whose extended resources come from a claim that kube-scheduler made."""
    nominated_node_name: str = ""
    """Where kube-scheduler made room for the pod, and is about to bind it."""
    conditions: tuple[KubeCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "conditions", intern_value(self.conditions))
        force_setattr(self, "container_statuses", intern_value(self.container_statuses))


def pod_path(namespace: str, name: str) -> str:
    """Return where a pod is on the API server."""
    return api_path("v1", "pods", namespace, name)


class Pod(OwnObject, frozen=True):
    spec: KubePodSpec = KubePodSpec()
    status: PodStatus = PodStatus()

    @property
    def path(self) -> str:
        return pod_path(self.metadata.namespace, self.metadata.name)

    @property
    def is_over(self) -> bool:
        """Whether its processes have ended, so that it holds nothing of its node any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def gates(self) -> Collection[str]:
        """Names of the scheduling gates that are still closed."""
        return [str(gate.get("name", "?")) for gate in self.spec.scheduling_gates]

    @property
    def claim_names(self) -> Collection[str]:
        """Names of the claims that were made for it, by its own account or kube-scheduler's."""
        made = [claim.resource_claim_name for claim in self.status.resource_claim_statuses]
        return [*made, str((self.status.extended_resource_claim_status or {}).get("resourceClaimName", ""))]

    @property
    def missing_claims(self) -> Collection[str]:
        """Names of the claims that are still to be made for it."""
        made = {claim.name for claim in self.status.resource_claim_statuses}
        return [
            each.name
            for each in self.spec.resource_claims
            if each.resource_claim_template_name and each.name not in made
        ]

    @property
    def is_ungated(self) -> bool:
        """Whether somebody other than voda let it be bound."""
        return well_known.GATE not in self.gates and well_known.NODE not in self.metadata.annotations

    @property
    def placed_on(self) -> str:
        """Name of the node where it is, or, of a worker, where alone kube-scheduler may put it by now; empty: none.

        Of other pods the annotation says nothing.
        """
        lifted_for = "" if self.gates else self.metadata.annotations.get(well_known.NODE, "")
        return self.spec.node_name or lifted_for

    def main_status(self, name: str) -> ContainerStatus | None:
        """Return the status of the container that trains: the one of that name, or where there is none, the first."""
        names = [each.name for each in self.spec.containers]
        main = name if name in names else next(iter(names), "")
        return next((each for each in self.status.container_statuses if each.name == main), None)

    @property
    def takes_from(self) -> str:
        """Name of the node whose resources are its own: where it is, or kube-scheduler makes room; empty: no node's.

        Not by the annotation: with it any pod that is kept from being bound would use up a node.
        """
        return "" if self.is_over else self.spec.node_name or self.status.nominated_node_name

    @property
    def is_leaving(self) -> bool:
        """Whether its deletion was requested; it holds what it has until it is gone."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_tracked(self) -> bool:
        """Whether a Job counts how it ends."""
        return well_known.JOB_TRACKING in self.metadata.finalizers

    @property
    def is_active(self) -> bool:
        """Whether it goes on, or is about to begin."""
        return not self.is_over and not self.is_leaving

    @property
    def leaves_at(self) -> float:
        """When its grace is over, seconds since the epoch; infinity where its deletion was not requested."""
        stamp = self.metadata.deletion_timestamp
        return datetime.fromisoformat(stamp).timestamp() if stamp else math.inf


class ReplicaStatus(KubeRecord, frozen=True):
    failed: int = 0


class JobStatus(KubeRecord, frozen=True):
    conditions: tuple[KubeCondition, ...] = ()
    replica_statuses: Mapping[str, ReplicaStatus] = {}
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str = ""
    """Of a Job: replicas that succeeded, such as 0,3-5."""
    failed_indexes: str = ""
    """Of a Job with backoffLimitPerIndex: replicas that failed for good, written alike."""

    @property
    def has_succeeded(self) -> bool:
        return any(self.condition(each) is not None for each in _SUCCESS)

    @property
    def done_indices(self) -> Set[int]:
        """Replicas of a Job that succeeded, and get no pod any more."""
        return indices(self.completed_indexes)

    def condition(self, kind: str) -> KubeCondition | None:
        """Return the condition of that type if its status is True."""
        return next((each for each in self.conditions if each.type == kind and each.status == "True"), None)


class KubeRunPolicy(KubeRecord, frozen=True):
    suspend: bool = False
    clean_pod_policy: str | None = None
    managed_by: str | None = None
    backoff_limit: int | None = None
    ttl_seconds_after_finished: int | None = None


class KubeTemplateSpec(KubeRecord, frozen=True):
    subdomain: str = ""
    resource_claims: tuple[PodClaim, ...] = ()


class KubeTemplate(KubeRecord, frozen=True):
    spec: KubeTemplateSpec = KubeTemplateSpec()


class ReplicaSpec(KubeRecord, frozen=True):
    replicas: int | None = None
    restart_policy: str = ""
    template: KubeTemplate = KubeTemplate()


class KubeElasticPolicy(KubeRecord, frozen=True):
    """Of a PyTorchJob: how many replicas its agents expect."""

    min_replicas: int | None = None
    max_replicas: int | None = None


class JobObjectSpec(KubeRecord, frozen=True):
    run_policy: KubeRunPolicy = KubeRunPolicy()
    elastic_policy: KubeElasticPolicy | None = None
    suspend: bool = False
    """Of a Job, as the next ones; other kinds have it in runPolicy."""
    managed_by: str | None = None
    parallelism: int | None = None
    backoff_limit_per_index: int | None = None
    success_policy: SuccessPolicy | None = None
    template: KubeTemplate = KubeTemplate()

    def roles(self, field: str) -> Mapping[str, ReplicaSpec]:
        """Return the roles in a field such as mpiReplicaSpecs."""
        roles: Mapping[str, ReplicaSpec] = getattr(self, field)
        return roles


if not TYPE_CHECKING:
    # Every kind but Job has a field of its own for its roles.
    _fields = [(kind.replica_specs, Mapping[str, ReplicaSpec], {}) for kind in KINDS.values() if kind.replica_specs]
    JobObjectSpec = defstruct("JobObjectSpec", _fields, bases=(JobObjectSpec,), frozen=True, kw_only=True)


class JobObject(WatchedObject, frozen=True):
    """A job of any kind. Lists do not repeat kind and apiVersion: the caller of the list knows them."""

    metadata: ObjectMeta
    spec: JobObjectSpec = JobObjectSpec()
    status: JobStatus = JobStatus()
    child: "JobObject | None" = None
    """The Job that its controller made of it, whose pods are its replicas; the inventory adds it."""
    void: Set[int] = frozenset()
    """Replicas that it counts as succeeded, whose pods were taken before their programs had finished; the inventory
    adds them."""
    evictions: int = 0
    """Times that the log has a worker of it evicted for its own limits; the inventory adds it."""
    is_void: bool = False
    """Whether its success as a whole is none for that reason, or it can only run on if it is made anew."""
    text: bytes = field(default=b"", name=".text")
    """All of it as a watch brought it, until it has its job; under a name that no field of an object has."""

    def with_text(self, text: Raw) -> Self:
        """Return the object with all that a watch said of it, where that is about to be read."""
        meta = self.metadata
        is_new = meta.is_managed and well_known.JOB_ID not in meta.annotations
        return replace(self, text=bytes(text)) if is_new else self

    def owns(self, pod: Pod) -> bool:
        """Say whether a pod is its own, or its child's."""
        uids = (self.metadata.uid, self.child.metadata.uid if self.child is not None else self.metadata.uid)
        return any(reference.uid in uids for reference in pod.metadata.owner_references)

    @property
    def is_suspended(self) -> bool:
        return self.spec.suspend or self.spec.run_policy.suspend

    @property
    def managed_by(self) -> str:
        """The controller that it names for itself; empty: none."""
        return self.spec.managed_by or self.spec.run_policy.managed_by or ""

    @property
    def has_finished(self) -> bool:
        """Whether its operator has finished with it."""
        return self.status.has_succeeded or self.status.condition("Failed") is not None

    def __post_init__(self) -> None:
        if not self.metadata.is_managed:
            # A cluster may have very many Jobs that are none of voda's business.
            self.metadata.keep_ours()
