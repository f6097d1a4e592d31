"""Kubernetes objects, trimmed to the fields that voda reads.

Rules: decoding drops everything else and keeps equal parts once, so that ten thousand pods, which tolerate the same
taints and request the same GPUs, cost megabytes and not gigabytes; an object and its mappings are never changed.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Set
from datetime import datetime
from sys import intern
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import quote

from msgspec import Struct, defstruct, field
from msgspec.structs import force_setattr

from voda.cluster.kubernetes import well_known
from voda.domain.job import MOST_REPLICAS
from voda.kinds.registry import KINDS

H = TypeVar("H", bound=Hashable)
V = TypeVar("V")
_OURS: Final = "voda.dev/"
"""Prefix of the annotations of pods and nodes that are kept: those of others are long, and voda reads none."""
_SUCCESS: Final = ("Succeeded", "SuccessCriteriaMet", "Complete")
"""Conditions by which operators say that a job succeeded; the last two are a Job's."""
_MOST: Final = 8192
_known: dict[Hashable, object] = {}
"""Parts that are kept once. The memory is bounded, for names and messages are endless."""


def intern_value(part: H) -> H:
    """Return the first part that was equal to this one."""
    return cast(H, _first(part, part))


def intern_mapping(part: Mapping[str, V]) -> Mapping[str, V]:
    """Return the first mapping that had the same items in the same order; of what can be hashed."""
    return cast(Mapping[str, V], _first(tuple(part.items()), part))


def intern_strings(part: Mapping[str, str]) -> Mapping[str, str]:
    """Return a mapping with keys and values that are kept once, for mappings of which hardly two are equal."""
    return {intern(key): intern(value) for key, value in part.items()} if part else intern_mapping(part)


def _first(name: Hashable, part: object) -> object:
    # The items of an empty mapping equal an empty tuple.
    key = (type(part), name)
    found = _known.get(key)
    if found is not None:
        return found
    if len(_known) >= _MOST:
        _known.clear()
    _known[key] = part
    return part


class _Object(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base: unknown fields are ignored."""


class OwnerReference(_Object, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectName(_Object, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name of what has no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ObjectMeta(ObjectName, frozen=True):
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "labels", intern_strings(self.labels))
        force_setattr(self, "finalizers", intern_value(self.finalizers))
        force_setattr(self, "owner_references", intern_value(self.owner_references))

    def keep_ours(self) -> None:
        """Drop the annotations of others; while decoding only."""
        ours = {key: value for key, value in self.annotations.items() if key.startswith(_OURS)}
        force_setattr(self, "annotations", intern_strings(ours))


class NamedObject(_Object, frozen=True):
    """Any object, as far as it takes to see whether it is the same."""

    metadata: ObjectName = ObjectName()


class Taint(_Object, frozen=True):
    key: str
    value: str = ""
    effect: str = ""


class NodeCondition(_Object, frozen=True):
    type: str
    status: str = ""


class NodeSpec(_Object, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(_Object, frozen=True):
    allocatable: Mapping[str, str] = {}
    conditions: tuple[NodeCondition, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "allocatable", intern_mapping(self.allocatable))
        force_setattr(self, "conditions", intern_value(self.conditions))


class NodeObject(_Object, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def __post_init__(self) -> None:
        self.metadata.keep_ours()


class ResourceRequirements(_Object, frozen=True):
    """Quantities as written: a string mostly, but a number is legal too."""

    requests: Mapping[str, str | int | float] = {}
    limits: Mapping[str, str | int | float] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "requests", intern_mapping(self.requests))
        force_setattr(self, "limits", intern_mapping(self.limits))


class KubeContainer(_Object, frozen=True):
    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    """Of an init container: Always makes it a sidecar, whose requests add to the containers'."""


class KubePodSpec(_Object, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    containers: tuple[KubeContainer, ...] = ()
    init_containers: tuple[KubeContainer, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    """Of the pod as a whole, where the server knows that; counts instead of the containers'."""
    overhead: Mapping[str, str | int | float] = {}
    node_selector: Mapping[str, str] = {}
    scheduling_gates: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "overhead", intern_mapping(self.overhead))
        force_setattr(self, "node_selector", intern_mapping(self.node_selector))


class Terminated(_Object, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class Waiting(_Object, frozen=True):
    reason: str = ""
    """ContainerCreating, ImagePullBackOff, CrashLoopBackOff, ..."""


class ContainerState(_Object, frozen=True):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Object, frozen=True):
    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class KubeCondition(_Object, frozen=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(_Object, frozen=True):
    phase: str = ""
    """Pending, Running, Succeeded, Failed or Unknown."""
    reason: str = ""
    """Evicted, NodeLost, Preempting, ... of a pod that failed without its program's doing."""
    message: str = ""
    nominated_node_name: str = ""
    """Where kube-scheduler made room for the pod, and is about to bind it."""
    conditions: tuple[KubeCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "conditions", intern_value(self.conditions))
        force_setattr(self, "container_statuses", intern_value(self.container_statuses))


class Pod(_Object, frozen=True):
    metadata: ObjectMeta
    spec: KubePodSpec = KubePodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        self.metadata.keep_ours()

    @property
    def path(self) -> str:
        namespace, name = quote(self.metadata.namespace, safe=""), quote(self.metadata.name, safe="")
        return f"/api/v1/namespaces/{namespace}/pods/{name}"

    @property
    def is_over(self) -> bool:
        """Whether its processes have ended, so that it holds nothing of its node any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def gates(self) -> Collection[str]:
        """Names of the scheduling gates that are still closed."""
        return [str(gate.get("name", "?")) for gate in self.spec.scheduling_gates]

    @property
    def is_ungated(self) -> bool:
        """Whether somebody other than voda let it be bound."""
        is_let_go = well_known.GATE not in self.gates and well_known.NODE not in self.metadata.annotations
        # Those of earlier versions never had a gate.
        return is_let_go and self.spec.scheduler_name != well_known.FORMER_SCHEDULER

    @property
    def placed_on(self) -> str:
        """Name of the node where it is, or, of a worker, where alone kube-scheduler may put it by now; empty: none.

        Of other pods the annotation says nothing.
        """
        lifted_for = "" if self.gates else self.metadata.annotations.get(well_known.NODE, "")
        return self.spec.node_name or lifted_for

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
    def leaves_at(self) -> float:
        """When its grace is over, seconds since the epoch; infinity where its deletion was not requested."""
        stamp = self.metadata.deletion_timestamp
        return datetime.fromisoformat(stamp).timestamp() if stamp else math.inf


class ReplicaStatus(_Object, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class JobStatus(_Object, frozen=True):
    conditions: tuple[KubeCondition, ...] = ()
    replica_statuses: Mapping[str, ReplicaStatus] = {}
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str = ""
    """Of a Job: replicas that succeeded, such as 0,3-5."""

    @property
    def has_succeeded(self) -> bool:
        return any(self.condition(each) is not None for each in _SUCCESS)

    @property
    def done_indices(self) -> Set[int]:
        """Replicas of a Job that succeeded, and get no pod any more."""
        found: set[int] = set()
        for each in self.completed_indexes.split(","):
            first, _, last = each.partition("-")
            if first.isdecimal() and (last or first).isdecimal():
                found.update(range(int(first), min(int(last or first), MOST_REPLICAS) + 1))
        return found

    def condition(self, kind: str) -> KubeCondition | None:
        """Return the condition of that type if its status is True."""
        return next((each for each in self.conditions if each.type == kind and each.status == "True"), None)


class KubeRunPolicy(_Object, frozen=True):
    suspend: bool = False
    managed_by: str | None = None
    backoff_limit: int | None = None


class ReplicaSpec(_Object, frozen=True):
    replicas: int | None = None
    restart_policy: str | None = None


class KubeElasticPolicy(_Object, frozen=True):
    """Of a PyTorchJob: how many replicas its agents expect."""

    min_replicas: int | None = None
    max_replicas: int | None = None


class KubeTemplateSpec(_Object, frozen=True):
    subdomain: str = ""


class KubeTemplate(_Object, frozen=True):
    spec: KubeTemplateSpec = KubeTemplateSpec()


class JobObjectSpec(_Object, frozen=True):
    run_policy: KubeRunPolicy = KubeRunPolicy()
    elastic_policy: KubeElasticPolicy | None = None
    suspend: bool = False
    """Of a Job, as the next ones; other kinds have it in runPolicy."""
    managed_by: str | None = None
    parallelism: int | None = None
    completions: int | None = None
    template: KubeTemplate = KubeTemplate()

    def roles(self, field: str) -> Mapping[str, ReplicaSpec]:
        """Return the roles in a field such as mpiReplicaSpecs."""
        roles: Mapping[str, ReplicaSpec] = getattr(self, field)
        return roles


if not TYPE_CHECKING:
    # Every kind but Job has a field of its own for its roles.
    _fields = [(kind.replica_specs, Mapping[str, ReplicaSpec], {}) for kind in KINDS.values() if kind.replica_specs]
    JobObjectSpec = defstruct("JobObjectSpec", _fields, bases=(JobObjectSpec,), frozen=True, kw_only=True)


class JobObject(_Object, frozen=True):
    """An MPIJob, a PyTorchJob or a Job. Lists do not repeat kind and apiVersion: the caller of the list knows them."""

    metadata: ObjectMeta
    spec: JobObjectSpec = JobObjectSpec()
    status: JobStatus = JobStatus()

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
        if self.metadata.labels.get(well_known.MANAGED) != "true":
            # A cluster may have very many Jobs that are none of voda's business.
            self.metadata.keep_ours()


class ListMetadata(_Object, frozen=True):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")
