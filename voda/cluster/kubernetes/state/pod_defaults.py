"""What a cluster adds to the pods of a namespace when they are made: defaults of LimitRanges, and what RuntimeClasses
cost and require. Pure.

Rule: as the admission plug-ins LimitRanger and RuntimeClass of Kubernetes 1.37 do it; of several LimitRanges the first
by name counts.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from msgspec.structs import replace

from voda.cluster.kubernetes.objects import OwnObject
from voda.kinds.base import role_mappings
from voda.kinds.pod_needs import worker_needs
from voda.kinds.pod_template import PodToleration, Quantity
from voda.kubernetes_client.metadata import KubeRecord
from voda.manifests.conversion import typed_manifest
from voda.manifests.parse import ParsedManifest

_CONTAINER: Final = "Container"


class LimitRangeItem(KubeRecord, frozen=True):
    type: str = ""
    default: Mapping[str, Quantity] = {}
    """Limits of containers that name none."""
    default_request: Mapping[str, Quantity] = {}


class LimitRangeSpec(KubeRecord, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(OwnObject, frozen=True):
    spec: LimitRangeSpec = LimitRangeSpec()


class Overhead(KubeRecord, frozen=True):
    pod_fixed: Mapping[str, Quantity] = {}


class RuntimeScheduling(KubeRecord, frozen=True):
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[PodToleration, ...] = ()


class RuntimeClass(OwnObject, frozen=True):
    overhead: Overhead = Overhead()
    scheduling: RuntimeScheduling = RuntimeScheduling()


class PodDefaults:
    """The LimitRanges and RuntimeClasses of a cluster."""

    def __init__(self) -> None:
        self.limit_ranges: dict[str, LimitRange] = {}
        """By namespace/name."""
        self.runtime_classes: dict[str, RuntimeClass] = {}
        self.changes = 0
        """How often one of them changed."""

    def put_limit_range(self, key: str, now: LimitRange | None) -> None:
        self._put(self.limit_ranges, key, now)

    def put_runtime_class(self, key: str, now: RuntimeClass | None) -> None:
        self._put(self.runtime_classes, key, now)

    def _put(self, kept: dict[str, Any], key: str, now: Any) -> None:
        self.changes += 1
        if now is None:
            kept.pop(key, None)
        else:
            kept[key] = now

    def requests(self, namespace: str) -> Mapping[str, Quantity]:
        """Return what a container requests that says nothing, resource -> quantity."""
        found: dict[str, Quantity] = {}
        for _, limits in sorted(self.limit_ranges.items()):
            if limits.metadata.namespace == namespace:
                for item in limits.spec.limits:
                    if item.type == _CONTAINER:
                        found = {**item.default, **item.default_request, **found}
        return found


def with_pod_defaults(parsed: ParsedManifest, defaults: PodDefaults, gpu_resource: str) -> ParsedManifest:
    """Return a manifest whose job needs of a node what its pods will ask for once they are made.

    Raises:
        InvalidField: that is more than plans compare with nodes.
    """
    requests = defaults.requests(parsed.spec.namespace)
    roles = role_mappings(type(parsed.job), parsed.raw["spec"])
    classes = defaults.runtime_classes
    if not requests and not any(_runtime_class(role["template"]["spec"]) in classes for role in roles.values()):
        return parsed
    filled = deepcopy({**parsed.raw})
    for role in role_mappings(type(parsed.job), filled["spec"]).values():
        _fill(role["template"]["spec"], requests, classes)
    needs = worker_needs(typed_manifest(filled), gpu_resource)
    return replace(parsed, spec=replace(parsed.spec, needs=needs))


def _runtime_class(pod: Mapping[str, Any]) -> str:
    name = pod.get("runtimeClassName")
    return name if isinstance(name, str) else ""


def _fill(pod: dict[str, Any], requests: Mapping[str, Quantity], classes: Mapping[str, RuntimeClass]) -> None:
    for container in (*(pod.get("containers") or ()), *(pod.get("initContainers") or ())):
        resources = container.get("resources") or {}
        own = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        container["resources"] = {**resources, "requests": {**requests, **own}}
    if (found := classes.get(_runtime_class(pod))) is None:
        return
    if found.overhead.pod_fixed:
        pod["overhead"] = dict(found.overhead.pod_fixed)
    pod["nodeSelector"] = {**found.scheduling.node_selector, **(pod.get("nodeSelector") or {})}
    pod["tolerations"] = [*(pod.get("tolerations") or ()), *map(_as_written, found.scheduling.tolerations)]


def _as_written(toleration: PodToleration) -> Mapping[str, str]:
    named = {name: getattr(toleration, name) for name in ("key", "operator", "value", "effect")}
    return {name: value for name, value in named.items() if value is not None}
