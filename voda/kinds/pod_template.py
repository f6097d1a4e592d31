"""The typed parts of a manifest that all kinds of jobs share: metadata, roles, pod templates, containers.

Rule: a field that voda reads has a type, and a value of another type is refused with its path; voda leaves every other
field alone.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

Quantity = int | float | str
MOST_GPUS: Final = 1_024
"""Of one replica."""
DEFAULT_BACKOFF_LIMIT: Final = 6
"""Of a Kubernetes Job. Jobs of kubeflow.org/v1 have no limit of their own; voda does not restart them for ever."""
KUBE_SCHEDULER: Final = (None, "", "default-scheduler")
"""Values of schedulerName by which kube-scheduler binds a pod."""

LAST_CALL: Final = "last_call_timeout"
LAST_CALL_S: Final = 2
"""How long torch agents wait at each start and resize for more of them; torch's own 30 s make every resize that slow.
"""

UNSHARED_STORE: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Set to 1, torch agents (2.4 and later) keep a store apart from their program's, whose address changes at a resize."""


class FieldRef(Struct, frozen=True, rename="camel"):
    """A field of the pod that a variable's value comes from."""

    field_path: str = ""


class ValueFrom(Struct, frozen=True, rename="camel"):
    """Where a variable's value comes from; voda reads fieldRef only."""

    field_ref: FieldRef | None = None


class EnvVar(Struct, frozen=True, rename="camel"):
    name: str
    value: str | None = None
    value_from: ValueFrom | None = None


class ContainerResources(Struct, frozen=True):
    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class ContainerTemplate(Struct, frozen=True, rename="camel"):
    name: str = ""
    image: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None
    working_dir: str | None = None
    resources: ContainerResources | None = None
    restart_policy: str | None = None
    """Of an init container: Always makes it a sidecar."""


class PodClaim(Struct, frozen=True, rename="camel"):
    """Devices of a pod: those of a claim of its own, made after a template, or of one that pods share."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class NodeSelectorRequirement(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Struct, frozen=True, rename="camel"):
    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class NodeSelector(Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class NodeAffinity(Struct, frozen=True, rename="camel"):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Struct, frozen=True, rename="camel"):
    """Which nodes a pod may have; voda reads what is required of the node itself."""

    node_affinity: NodeAffinity | None = None


class PodToleration(Struct, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class PodTemplateSpec(Struct, frozen=True, rename="camel"):
    containers: Annotated[tuple[ContainerTemplate, ...], Meta(min_length=1)]
    init_containers: tuple[ContainerTemplate, ...] | None = None
    resources: ContainerResources | None = None
    """Of the pod as a whole, which counts instead of the containers'."""
    overhead: dict[str, Quantity] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[PodToleration, ...] | None = None
    termination_grace_period_seconds: int | None = None
    priority_class_name: str | None = None
    resource_claims: tuple[PodClaim, ...] | None = None
    restart_policy: str | None = None


class PodTemplate(Struct, frozen=True):
    spec: PodTemplateSpec


class RoleTemplate(Struct, frozen=True, rename="camel"):
    template: PodTemplate
    replicas: int | None = None
    restart_policy: str | None = None


class JobMetadata(Struct, frozen=True, rename="camel"):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class RunPolicyFields(Struct, frozen=True, rename="camel"):
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    clean_pod_policy: str | None = None
    suspend: bool | None = None


class RdzvConf(Struct, frozen=True):
    key: str = ""
    value: str = ""


class TorchElasticPolicy(Struct, frozen=True, rename="camel"):
    min_replicas: int | None = None
    max_replicas: int | None = None
    rdzv_backend: str | None = None
    """c10d, etcd or etcd-v2; None: c10d."""
    rdzv_host: str | None = None
    """None: the first worker."""
    rdzv_port: int | None = None
    rdzv_id: str | None = None
    rdzv_conf: tuple[RdzvConf, ...] | None = None
    standalone: bool | None = None
    max_restarts: int | None = None
    """TorchElastic counts resizes against it too."""
    n_proc_per_node: int | None = None
