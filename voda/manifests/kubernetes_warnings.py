"""What voda changes of a manifest on Kubernetes, where the job is an object of its operator.

Rule: nearly everything works there (images, volumes, service accounts). The user is warned of what voda changes so
that it can place and suspend the job, and of what only kube-scheduler could do; a template is refused where the API
server would make no pod of it.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from voda.domain.errors import InvalidField
from voda.kinds.base import (
    OPERATORS,
    FieldWarning,
    JobManifest,
    field_warnings,
    role_mappings,
    run_policy_mapping,
    run_policy_path,
)
from voda.kinds.pod_needs import OF_CLASS
from voda.kinds.pod_template import KUBE_SCHEDULER, ContainerTemplate
from voda.kinds.registry import KINDS
from voda.manifests.conversion import type_error
from voda.manifests.parse import ParsedManifest
from voda.manifests.programs import env_files_annotation
from voda.manifests.replicas import is_gpu_count, named_resources
from voda.programs.program_manifest import ENV_FILE

_KUEUE: Final = "kueue.x-k8s.io/queue-name"
_LEAST_TTL_S: Final = 300
_BY_PLACER: Final = "not planned for: nodes that kube-scheduler refuses for it are avoided, one after the other"
_OF_METADATA: Final = {
    "finalizers": "left out: the object would outlive its deletion",
    "ownerReferences": "left out: the object belongs to the job alone",
}
_OF_RUN_POLICY: Final = {
    "schedulingPolicy": "not needed: voda lets all workers of a start go to their nodes together",
    "activeDeadlineSeconds": "counts from the latest start: a preempted job has all of it again",
}
_OF_PODS: Final = {
    "nodeName": "left out: voda places the replicas; name nodes by nodeSelector",
    "topologySpreadConstraints": _BY_PLACER,
}
_OF_AFFINITY: Final = {"podAffinity": _BY_PLACER, "podAntiAffinity": _BY_PLACER}


class _TemplateMetadata(Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _TemplateSpec(Struct, rename="camel"):
    scheduler_name: str | None = None
    node_name: str | None = None
    tolerations: list[dict[str, str | int]] | None = None


class _ChangedTemplate(Struct):
    """The parts of a pod template that voda adds to, and so has to understand."""

    spec: _TemplateSpec
    metadata: _TemplateMetadata | None = None


def kubernetes_warnings(
    parsed: ParsedManifest, served: Mapping[str, str], gpu_resource: str, *, counts_claims: bool = False
) -> tuple[FieldWarning, ...]:
    """Return what a cluster changes or ignores of a manifest, besides the warnings of `parse`.

    `served` is kind -> the apiVersion that the cluster serves, `gpu_resource` what its pools count, such as
    nvidia.com/gpu; `counts_claims` says whether they count what claims ask for, too.

    Raises:
        InvalidField: the cluster does not run the kind, or no pod could be made of a template.
    """
    job, raw = parsed.job, parsed.raw
    # First: a program without an image lacks that, whatever kind was made of it.
    _refuse_impossible_pods(job, raw)
    if job.kind not in served:
        runs = " and ".join(sorted(served)) or f"neither {' nor '.join(f'{name}s' for name in KINDS)}"
        raise InvalidField(
            "kind", f"kind: {job.kind} has no operator in this cluster, which runs {runs}: install {job.installed_by}"
        )
    _refuse_env_files(job)
    converted = job.in_version(raw, served[job.kind])
    return (
        *_metadata(raw["metadata"]),
        *converted.warnings,
        *_run_policy(job, raw["spec"], is_v1=served[job.kind].endswith("/v1")),
        *job.kubernetes_warnings(converted.manifest, parsed.spec),
        *_placed_pods(job, raw),
        *_uncounted_gpus(parsed, gpu_resource, counts_claims=counts_claims),
    )


def refuse_elsewhere(parsed: ParsedManifest, namespaces: Collection[str], kinds: Collection[str] = ()) -> None:
    """Raise InvalidField where the job's namespace or kind is none of those in which voda runs jobs; empty: any."""
    kind = parsed.job.kind
    if kinds and kind not in kinds:
        expected = f"expected one that this voda runs ({', '.join(kinds)}; cluster.kinds of its settings)"
        raise InvalidField("kind", f"kind: {expected}, got {kind}")
    namespace = parsed.spec.namespace
    if namespaces and namespace not in namespaces:
        expected = f"expected a namespace where voda looks for jobs ({', '.join(sorted(namespaces))})"
        raise InvalidField("metadata.namespace", f"metadata.namespace: {expected}, got {namespace!r}")


def _refuse_env_files(job: JobManifest) -> None:
    for name in env_files_annotation(job):
        field = f"metadata.annotations[{ENV_FILE}{name[:60]}]"
        raise InvalidField(
            field, f"{field}: names a file of one machine: keep it in a Secret, and name that by valueFrom.secretKeyRef"
        )


def _refuse_impossible_pods(job: JobManifest, raw: Mapping[str, Any]) -> None:
    for name, role in job.roles.items():
        path = f"{job.path(name)}.template"
        _refuse_wrong_types(role_mappings(job, raw["spec"])[name]["template"], path)
        containers = role.template.spec.containers
        for index, container in enumerate(containers):
            _refuse_impossible_container(container, f"{path}.spec.containers[{index}]")
        expected = job.container_name
        if expected and all(each.name != expected for each in containers):
            field, got = f"{path}.spec.containers[0].name", containers[0].name[:60]
            raise InvalidField(field, f"{field}: the operator expects a container named {expected}, got {got!r}")


def _refuse_wrong_types(template: Mapping[str, Any], path: str) -> None:
    try:
        msgspec.convert(template, _ChangedTemplate)
    except msgspec.ValidationError as error:
        wrong = type_error(template, str(error))
        raise InvalidField(f"{path}.{wrong.field}", f"{path}.{wrong}") from None


def _refuse_impossible_container(container: ContainerTemplate, path: str) -> None:
    for name, value in (("name", container.name), ("image", container.image)):
        if not value:
            raise InvalidField(f"{path}.{name}", f"{path}.{name} is missing: Kubernetes makes no pod without it")
    limits = (container.resources.limits if container.resources else None) or {}
    requests = (container.resources.requests if container.resources else None) or {}
    for resource, amount in requests.items():
        if is_gpu_count(resource) and str(limits.get(resource)) != str(amount):
            field = f"{path}.resources.limits[{resource[:80]}]"
            expected = f"{str(amount)[:20]}, as in requests"
            raise InvalidField(field, f"{field}: expected {expected}: only limits can ask for a GPU")


def _metadata(metadata: Mapping[str, Any]) -> Iterator[FieldWarning]:
    yield from field_warnings(metadata, "metadata", _OF_METADATA)
    if (metadata.get("labels") or {}).get(_KUEUE):
        message = "left out of the object: voda runs the job, so Kueue must not"
        yield FieldWarning(field=f"metadata.labels[{_KUEUE}]", message=message)


def _run_policy(job: JobManifest, spec: Mapping[str, Any], *, is_v1: bool) -> Iterator[FieldWarning]:
    policy, path = run_policy_mapping(job, spec), run_policy_path(job)
    yield from field_warnings(policy, path, _OF_RUN_POLICY)
    if policy.get("managedBy") not in (None, "", *OPERATORS):
        yield FieldWarning(field=f"{path}.managedBy", message="left out: voda runs the job itself")
    ttl_s = policy.get("ttlSecondsAfterFinished")
    if is_v1 and ttl_s is not None and ttl_s < _LEAST_TTL_S:
        message = f"with less than {_LEAST_TTL_S}, the object may be gone before voda sees how the job ended"
        yield FieldWarning(field=f"{path}.ttlSecondsAfterFinished", message=message)


def _placed_pods(job: JobManifest, raw: Mapping[str, Any]) -> Iterator[FieldWarning]:
    """Yield what voda, which names the nodes of replicas, changes or ignores of their templates."""
    for role in job.roles:
        if role not in job.placed_roles:
            continue
        pod, path = role_mappings(job, raw["spec"])[role]["template"]["spec"], f"{job.path(role)}.template.spec"
        if pod.get("schedulerName") not in KUBE_SCHEDULER:
            yield FieldWarning(
                field=f"{path}.schedulerName", message="not used: kube-scheduler binds the replicas, where voda says"
            )
        yield from field_warnings(pod, path, _OF_PODS)
        yield from field_warnings(pod.get("affinity"), f"{path}.affinity", _OF_AFFINITY)


def _uncounted_gpus(parsed: ParsedManifest, resource: str, *, counts_claims: bool) -> Iterator[FieldWarning]:
    job = parsed.job
    role = job.resized_role
    claims = job.roles[role].template.spec.resource_claims
    if claims and not counts_claims:
        message = "not counted: this voda sees no devices that are claimed (Kubernetes 1.34, cluster.gpuDeviceClasses)"
        yield FieldWarning(field=f"{job.path(role)}.template.spec.resourceClaims", message=message)
    if not claims and not any(name == resource or name.startswith(OF_CLASS) for name in named_resources(job)):
        yield FieldWarning(
            field=f"{job.path(role)}.template.spec.containers[0].resources.limits",
            message=f"asks for no {resource}: its replicas start without GPUs, and wait for none",
        )
