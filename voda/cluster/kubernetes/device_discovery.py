"""Finds out whether a cluster has devices that are claimed (dynamic resource allocation), and which to mirror.

Rule: without them, or without rights to them, all else works; both may come while voda runs.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from voda.cluster.kubernetes.device_objects import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from voda.cluster.kubernetes.state.devices import DeviceStock
from voda.domain.errors import ActionRefused
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.metadata import KubeRecord, PartialObject
from voda.kubernetes_client.paths import api_path
from voda.kubernetes_client.reflector import Reflector

_log = logging.getLogger(__name__)
_VERSION: Final = "resource.k8s.io/v1"
"""Served by Kubernetes 1.34 or newer."""
_CLASSES: Final = "deviceclasses"
_SLICES: Final = "resourceslices"
_CLAIMS: Final = "resourceclaims"
_TEMPLATES: Final = "resourceclaimtemplates"
_TAINT_RULES: Final = "devicetaintrules"
"""Served by Kubernetes 1.37 or newer."""
_WIDE: Final = (_CLASSES, _SLICES, _CLAIMS)
"""Mirrored in the whole cluster."""
ONE_OBJECT: Final = {"fieldSelector": "metadata.name=voda"}
"""At most one object of a collection: whether it may be listed is all that is asked."""

MakeReflector = Callable[[str, type[Any], Callable[[str, Any], None], Callable[[], Mapping[str, Any]]], Reflector[Any]]
"""(path, type of its objects, what takes a change, what is kept) -> reflector."""


class _Collection(KubeRecord, frozen=True):
    name: str = ""


class _Collections(KubeRecord, frozen=True):
    """What an API server says of one version of an API group."""

    resources: tuple[_Collection, ...] = ()


@dataclass(kw_only=True)
class DeviceDiscovery:
    api: Api
    stock: DeviceStock
    mirrored: MakeReflector
    _followed: set[tuple[str, str]] = field(default_factory=set, init=False)
    """Collection and namespace."""
    _has_taint_rules: bool = field(default=False, init=False)
    _warned: set[str] = field(default_factory=set, init=False)
    """What was said once."""

    async def discover(self, namespaces: Sequence[str]) -> list[Reflector[Any]]:
        """Return reflectors of what is not mirrored yet: claim templates of these namespaces, all else of the cluster.

        ClusterUnavailable, ActionRefused: the server does not say what it serves.
        """
        stock = self.stock
        stock.is_served = stock.is_served or await self._is_served(namespaces)
        if stock.is_served and not self._has_taint_rules:
            self._has_taint_rules = await self._serves_taint_rules()
        gpus, found = stock.published, list[Reflector[Any]]()
        # First what says which devices are GPUs.
        for name, of, put, kept in (
            (_CLASSES, DeviceClass, gpus.put_class, gpus.classes),
            (_TAINT_RULES, DeviceTaintRule, gpus.put_taint_rule, gpus.taint_rules),
            (_SLICES, ResourceSlice, gpus.put_slice, gpus.slices),
            (_CLAIMS, ResourceClaim, stock.put_claim, stock.claims),
            (_TEMPLATES, ResourceClaimTemplate, stock.put_template, stock.templates),
        ):
            for namespace in namespaces if name == _TEMPLATES else ("",):
                is_there = self._has_taint_rules if name == _TAINT_RULES else stock.is_served
                if is_there and (name, namespace) not in self._followed:
                    self._followed.add((name, namespace))
                    found.append(
                        self.mirrored(api_path(_VERSION, name, namespace), of, put, partial(within, namespace, kept))
                    )
        return found

    async def _is_served(self, namespaces: Sequence[str]) -> bool:
        if not self.stock.rule.device_classes or await self.api.get(f"/apis/{_VERSION}", dict) is None:
            return False
        try:
            # Each of them: a mirror of what may not be listed is never complete, and voda never ready.
            for name, namespace in (*((each, "") for each in _WIDE), *((_TEMPLATES, each) for each in namespaces)):
                await self.api.list(api_path(_VERSION, name, namespace), PartialObject, ONE_OBJECT)
        except ActionRefused as error:
            return self._refused("GPUs that are claimed do not count", error)
        return True

    async def _serves_taint_rules(self) -> bool:
        served = await self.api.get(f"/apis/{_VERSION}", _Collections)
        if served is None or not any(each.name == _TAINT_RULES for each in served.resources):
            return False
        try:
            await self.api.list(api_path(_VERSION, _TAINT_RULES), PartialObject, ONE_OBJECT)
        except ActionRefused as error:
            return self._refused("devices that a DeviceTaintRule taints count as if it did not", error)
        return True

    def _refused(self, what: str, error: ActionRefused) -> bool:
        # An earlier installation gave no such rights.
        _log.log(logging.DEBUG if what in self._warned else logging.WARNING, "%s reason=%s", what, error)
        self._warned.add(what)
        return False


def within(namespace: str, objects: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the objects of a namespace, or all where it is empty."""
    return {key: each for key, each in objects.items() if namespace in ("", each.metadata.namespace)}
