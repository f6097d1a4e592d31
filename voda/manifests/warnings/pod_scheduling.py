"""Pods that voda binds to nodes by itself: what of their templates kube-scheduler would have seen to.

Rule: exact paths, one sentence each; only of the roles whose pods are replicas.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from voda.domain.errors import InvalidField
from voda.manifests.parsed import Omission
from voda.manifests.programs import wanted_container
from voda.manifests.read.schema import Container, PyTorchJob, Shape
from voda.manifests.read.type_errors import shape_error
from voda.manifests.resources import is_gpu_count
from voda.manifests.warnings.local_warnings import named

_PLACED: Final = ("Master", "Worker")
_BY_PLACER: Final = "not considered: voda's placement decides which nodes the replicas share"
_OF_PODS: Final = {
    "nodeName": "left out: voda places the replicas; name nodes by nodeSelector",
    "topologySpreadConstraints": _BY_PLACER,
    "resourceClaims": "not allocated: kube-scheduler, which would do it, does not place these pods",
}
_OF_AFFINITY: Final = {"podAffinity": _BY_PLACER, "podAntiAffinity": _BY_PLACER}


class _Metadata(Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Pod(Struct, rename="camel"):
    scheduler_name: str | None = None
    node_name: str | None = None
    tolerations: list[dict[str, str | int]] | None = None


class _Template(Struct):
    """What voda adds to, and would be the first to stumble over."""

    spec: _Pod
    metadata: _Metadata | None = None


def of_placed_pods(job: Shape, manifest: Mapping[str, Any]) -> Iterator[Omission]:
    """Yield what of the replicas' templates is changed or not considered."""
    roles = manifest["spec"][job.replica_specs.removeprefix("spec.")]
    for role in job.roles:
        if role not in _PLACED:
            continue
        pod, path = roles[role]["template"]["spec"], f"{job.replica_specs}.{role}.template.spec"
        if pod.get("schedulerName") not in (None, "", "voda", "default-scheduler"):
            yield Omission(field=f"{path}.schedulerName", message="not used: voda places the replicas itself")
        yield from named(pod, path, _OF_PODS)
        yield from named(pod.get("affinity"), f"{path}.affinity", _OF_AFFINITY)
        yield from _late_volumes(pod, path)


def refuse_unmade(job: Shape, manifest: Mapping[str, Any]) -> None:
    """Raise InvalidField on the first template that the API server would make no pod of."""
    roles = manifest["spec"][job.replica_specs.removeprefix("spec.")]
    for role, replica in job.roles.items():
        _refuse_odd(roles[role]["template"], f"{job.replica_specs}.{role}.template")
        containers = replica.template.spec.containers
        path = f"{job.replica_specs}.{role}.template.spec.containers"
        for place, container in enumerate(containers):
            _refuse_unmade(container, f"{path}[{place}]")
        wanted = wanted_container(job)
        if isinstance(job, PyTorchJob) and all(each.name != wanted for each in containers):
            field, got = f"{path}[0].name", containers[0].name[:60]
            raise InvalidField(field, f"{field}: the operator expects a container named {wanted}, got {got!r}")


def _refuse_odd(template: Mapping[str, Any], path: str) -> None:
    try:
        msgspec.convert(template, _Template)
    except msgspec.ValidationError as error:
        wrong = shape_error(template, str(error))
        raise InvalidField(f"{path}.{wrong.field}", f"{path}.{wrong}") from None


def _refuse_unmade(container: Container, path: str) -> None:
    for name, value in (("name", container.name), ("image", container.image)):
        if not value:
            raise InvalidField(f"{path}.{name}", f"{path}.{name} is missing: Kubernetes makes no pod without it")
    limits = (container.resources.limits if container.resources else None) or {}
    requests = (container.resources.requests if container.resources else None) or {}
    for resource, asked in requests.items():
        if is_gpu_count(resource) and str(limits.get(resource)) != str(asked):
            field = f"{path}.resources.limits[{resource[:80]}]"
            raise InvalidField(
                field, f"{field}: expected {str(asked)[:20]}, as in requests: a GPU can only be asked for by limits"
            )


def _late_volumes(pod: Mapping[str, Any], path: str) -> Iterator[Omission]:
    volumes = pod.get("volumes")
    for place, volume in enumerate(volumes if isinstance(volumes, list) else ()):
        if isinstance(volume, Mapping) and volume.get("ephemeral"):
            yield Omission(
                field=f"{path}.volumes[{place}].ephemeral",
                message="its storage class must bind at once: WaitForFirstConsumer waits for kube-scheduler",
            )
