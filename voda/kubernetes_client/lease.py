"""The Lease of voda's leader: a coordination.k8s.io/v1 object that the leader keeps renewing.

Rule: it is changed only by compare-and-swap on its resource version, so of two candidates that take it one gets
Conflict; fields that voda does not use stay as they are.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from voda.clock import Clock
from voda.domain.lease import Lease
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Conflict
from voda.kubernetes_client.metadata import ObjectName
from voda.kubernetes_client.paths import api_path

RELEASED_S: Final = 1
"""leaseDurationSeconds of a lease that nobody holds; the server requires at least one second."""
_GROUP_VERSION: Final = "coordination.k8s.io/v1"


class LeaseSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseObject(Struct, frozen=True, kw_only=True):
    metadata: ObjectName
    spec: LeaseSpec | None = None


class LeaseClient:
    """One Lease; see LeaseStore. The clock dates the renewals, for people to read."""

    def __init__(self, api: Api, namespace: str, name: str, *, clock: Clock) -> None:
        self.key = f"{namespace}/{name}"
        self._api = api
        self._clock = clock
        self._name = name
        self._collection = api_path(_GROUP_VERSION, "leases", namespace)
        self._path = api_path(_GROUP_VERSION, "leases", namespace, name)
        # RBAC may grant rights for this one name: lists and watches must then select it.
        self._query: Mapping[str, str] = {"fieldSelector": f"metadata.name={name}"}

    async def read(self) -> Lease | None:
        found = await self._api.get(self._path, LeaseObject)
        return None if found is None else _lease(found)

    async def take(self, seen: Lease | None, *, holder: str, transitions: int, duration_s: float) -> Lease:
        """Take the Lease for the holder, if it still is what was seen (None: there was none); Conflict: it is not."""
        now = self._now()
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, round(duration_s)),
            "leaseTransitions": transitions,
            "acquireTime": now,
            "renewTime": now,
        }
        if seen is not None:
            return await self._change(seen, spec)
        body = {
            "apiVersion": _GROUP_VERSION,
            "kind": "Lease",
            "metadata": {"name": self._name, "labels": {"app.kubernetes.io/name": "voda"}},
            "spec": spec,
        }
        return _lease(await self._api.create(self._collection, body, LeaseObject))

    async def renew(self, mine: Lease) -> Lease:
        """Renew the Lease as the last call returned it; Conflict: it is not as the holder left it."""
        return await self._change(mine, {"renewTime": self._now()})

    async def release(self, mine: Lease) -> None:
        """Let others take over at once; Conflict: it is not as the holder left it."""
        spec = {"holderIdentity": "", "leaseDurationSeconds": RELEASED_S, "renewTime": self._now()}
        await self._change(mine, spec)

    async def watch(self) -> AsyncGenerator[Lease | None, None]:
        """Yield the Lease as it is, and again whenever it changes; None = there is none. The server may end it.

        Raises:
            ClusterUnavailable: the connection broke.
        """
        listed = await self._api.list(self._collection, LeaseObject, self._query)
        yield _lease(listed.items[0]) if listed.items else None
        changes = self._api.watch(self._collection, LeaseObject, after=listed.resource_version, query=self._query)
        async with aclosing(changes):
            async for change in changes:
                if change.type != "BOOKMARK":
                    yield None if change.type == "DELETED" else _lease(change.object)

    async def _change(self, seen: Lease, spec: Mapping[str, Any]) -> Lease:
        body = {"metadata": {"resourceVersion": seen.version}, "spec": spec}
        changed = await self._api.patch(self._path, body, LeaseObject)
        if changed is None:
            raise Conflict(f"lease {self.key} was deleted")
        return _lease(changed)

    def _now(self) -> str:
        # MicroTime: the server requires exactly six digits.
        return f"{datetime.fromtimestamp(self._clock.now(), UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _lease(found: LeaseObject) -> Lease:
    spec = found.spec or LeaseSpec()
    return Lease(
        holder=spec.holder_identity or "",
        transitions=spec.lease_transitions or 0,
        duration_s=float(spec.lease_duration_seconds or 0),
        renewed_at=spec.renew_time or "",
        version=found.metadata.resource_version,
    )
