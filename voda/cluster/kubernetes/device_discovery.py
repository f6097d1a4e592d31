"""Finds out whether a cluster has devices that are claimed (dynamic resource allocation), and which to mirror.

Rule: without them, or without rights to them, all else works; both may come while voda runs.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from voda.cluster.kubernetes.device_objects import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from voda.cluster.kubernetes.state.devices import DeviceStock
from voda.domain.errors import ActionRefused
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.metadata import PartialObject
from voda.kubernetes_client.paths import api_path
from voda.kubernetes_client.reflector import Reflector

_log = logging.getLogger(__name__)
_VERSION: Final = "resource.k8s.io/v1"
"""Served by Kubernetes 1.34 or newer."""
_CLASSES: Final = "deviceclasses"
_SLICES: Final = "resourceslices"
_CLAIMS: Final = "resourceclaims"
_TEMPLATES: Final = "resourceclaimtemplates"
_WIDE: Final = (_CLASSES, _SLICES, _CLAIMS)
"""Mirrored in the whole cluster."""
_ONE: Final = {"fieldSelector": "metadata.name=voda"}
"""At most one object of a collection: whether it may be listed is all that is asked."""

MakeReflector = Callable[[str, type[Any], Callable[[str, Any], None], Callable[[], Mapping[str, Any]]], Reflector[Any]]
"""(path, type of its objects, what takes a change, what is kept) -> reflector."""


@dataclass(kw_only=True)
class DeviceDiscovery:
    api: Api
    stock: DeviceStock
    mirrored: MakeReflector
    _followed: set[tuple[str, str]] = field(default_factory=set, init=False)
    """Collection and namespace."""
    _has_warned: bool = field(default=False, init=False)

    async def discover(self, namespaces: Sequence[str]) -> list[Reflector[Any]]:
        """Return reflectors of what is not mirrored yet: claim templates of these namespaces, all else of the cluster.

        ClusterUnavailable, ActionRefused: the server does not say what it serves.
        """
        stock = self.stock
        stock.is_served = stock.is_served or await self._is_served(namespaces)
        found: list[Reflector[Any]] = []
        # First what says which devices are GPUs.
        for name, of, put, kept in (
            (_CLASSES, DeviceClass, stock.put_class, stock.classes),
            (_SLICES, ResourceSlice, stock.put_slice, stock.slices),
            (_CLAIMS, ResourceClaim, stock.put_claim, stock.claims),
            (_TEMPLATES, ResourceClaimTemplate, stock.put_template, stock.templates),
        ):
            for namespace in namespaces if name == _TEMPLATES else ("",):
                if stock.is_served and (name, namespace) not in self._followed:
                    self._followed.add((name, namespace))
                    found.append(
                        self.mirrored(api_path(_VERSION, name, namespace), of, put, partial(_within, namespace, kept))
                    )
        return found

    async def _is_served(self, namespaces: Sequence[str]) -> bool:
        if not self.stock.rule.device_classes or await self.api.get(f"/apis/{_VERSION}", dict) is None:
            return False
        try:
            # Each of them: a mirror of what may not be listed is never complete, and voda never ready.
            for name, namespace in (*((each, "") for each in _WIDE), *((_TEMPLATES, each) for each in namespaces)):
                await self.api.list(api_path(_VERSION, name, namespace), PartialObject, _ONE)
        except ActionRefused as error:
            # An earlier installation gave no such rights.
            level = logging.DEBUG if self._has_warned else logging.WARNING
            _log.log(level, "GPUs that are claimed do not count reason=%s", error)
            self._has_warned = True
            return False
        return True


def _within(namespace: str, objects: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: each for key, each in objects.items() if namespace in ("", each.metadata.namespace)}
