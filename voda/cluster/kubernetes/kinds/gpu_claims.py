"""Claims of GPUs: those in a job's object, and those that voda makes where the manifest names a device class. Pure.

Rule: the name of the template says all that is in it, for nobody can change one that is there.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import JobObject, ObjectMeta
from voda.domain.job import JobSpec
from voda.kinds.base import JobManifest, role_mappings
from voda.kinds.pod_template import MOST_GPUS, PodClaim
from voda.kubernetes_client.paths import api_path
from voda.manifests.parse import DEVICE_CLASS
from voda.manifests.replicas import is_gpu_count

_LONGEST_NAME: Final = 253
"""That the API server takes."""
_DIGEST_BYTES: Final = 8


def replica_claims(kind: type[JobManifest], job: JobObject) -> Sequence[PodClaim]:
    """Return the claims of a replica's pod."""
    roles = job.spec.roles(kind.replica_specs) if kind.replica_specs else {}
    template = next((roles[role].template for role in reversed(kind.placed_roles) if role in roles), None)
    return (template or (job.child or job).spec.template).spec.resource_claims


def claim_gpus(kind: type[JobManifest], job: dict[str, Any], spec: JobSpec) -> None:
    """Let the replicas of a new object claim their GPUs, where its manifest names a device class."""
    annotations, roles = job["metadata"]["annotations"], role_mappings(kind, job["spec"])
    if device_class := annotations.get(DEVICE_CLASS):
        annotations[well_known.GPUS_CLAIMED] = str(spec.gpus_per_replica)
        name = _template_name(spec.name or spec.job_id, device_class, spec.gpus_per_replica)
        for role in roles.keys() & set(kind.placed_roles):
            roles[role]["template"] = _with_gpu_claim(roles[role]["template"], name)


def owner_reference(api_version: str, kind: str, meta: ObjectMeta) -> dict[str, Any]:
    """Return the reference by which an object owns what is made for it."""
    return {"apiVersion": api_version, "kind": kind, "name": meta.name, "uid": meta.uid}


def gpu_claim_template(owner: Mapping[str, Any], meta: ObjectMeta) -> Sequence[tuple[str, dict[str, Any]]]:
    """Return (collection, template) for the replicas of an object that voda made to claim GPUs; empty for others."""
    device_class, gpus = meta.annotations.get(DEVICE_CLASS, ""), _gpus_claimed(meta)
    if not device_class or not gpus:
        return ()
    template = claim_template(meta.name, meta.namespace, device_class, gpus)
    template["metadata"] |= {"labels": {well_known.MANAGED: "true"}, "ownerReferences": [owner]}
    return ((api_path("resource.k8s.io/v1", "resourceclaimtemplates", meta.namespace), template),)


def claim_template(job: str, namespace: str, device_class: str, gpus: int) -> dict[str, Any]:
    """Return the template by which replicas of a job claim so many GPUs."""
    request = {"name": "gpus", "exactly": {"deviceClassName": device_class, "count": gpus}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": _template_name(job, device_class, gpus), "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def _gpus_claimed(meta: ObjectMeta) -> int:
    """Return how many GPUs an object says that its replicas claim; 0 where it says no number that a replica can have.

    Whoever may change the object may write anything there.
    """
    text = meta.annotations.get(well_known.GPUS_CLAIMED, "")
    is_count = text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_GPUS))
    gpus = int(text) if is_count else 0
    return gpus if gpus <= MOST_GPUS else 0


def _template_name(job: str, device_class: str, gpus: int) -> str:
    name = f"{job}-{gpus}-{device_class}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = blake2b(name.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{name[: _LONGEST_NAME - len(digest) - 1].rstrip('.-')}-{digest}"


def _with_gpu_claim(template: Mapping[str, Any], claim_template: str) -> dict[str, Any]:
    """Return a template whose pods claim their GPUs, instead of asking for them by a resource."""
    pod = dict(template["spec"])
    claim = {"name": well_known.GPU_CLAIM, "resourceClaimTemplateName": claim_template}
    pod["resourceClaims"] = [*(pod.get("resourceClaims") or ()), claim]
    containers = [_without_gpus(each) for each in pod["containers"]]
    users = [at for at, (_, is_user) in enumerate(containers) if is_user] or [0]
    pod["containers"] = [_with_claim(each) if at in users else each for at, (each, _) in enumerate(containers)]
    return {**template, "spec": pod}


def _without_gpus(container: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a container that asks for no GPU by a resource, and whether it did."""
    resources = dict(container.get("resources") or {})
    is_user = False
    for field in resources.keys() & {"limits", "requests"}:
        amounts = resources[field] or {}
        resources[field] = {name: amount for name, amount in amounts.items() if not is_gpu_count(name)}
        is_user |= len(resources[field]) < len(amounts)
    return {**container, "resources": resources}, is_user


def _with_claim(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container["resources"]
    claims = [*(resources.get("claims") or ()), {"name": well_known.GPU_CLAIM}]
    return {**container, "resources": {**resources, "claims": claims}}
