"""Mirrors the cluster: asks which kinds of jobs it serves, and lists and watches nodes, pods and job objects.

Every replica does this, so that a new leader knows at once what there is. A watch may be a moment behind, and never
shows what came and went while it was down: `MissingObjects` fetches single objects that jobs should have.

Rule: a server that has just started knows no custom resources for a moment, and jobs must not be taken for deleted
then: the mirror counts as synced only once every kind that jobs need is served, or has been missing for long.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from voda.clock import Clock
from voda.cluster.kubernetes.device_discovery import ONE_OBJECT, DeviceDiscovery, MakeReflector, within
from voda.cluster.kubernetes.kinds import served_kinds
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject, NodeObject, Pod
from voda.cluster.kubernetes.setup import KubernetesSetup
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_objects import KubeJob, OnJobChange, is_older
from voda.cluster.kubernetes.state.pod_defaults import LimitRange, PodDefaults, RuntimeClass
from voda.concurrency import log_unexpected
from voda.domain.errors import ActionRefused, ClusterUnavailable
from voda.domain.job import Job, JobSpec
from voda.kinds.registry import KINDS
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import NotServed
from voda.kubernetes_client.metadata import PartialObject
from voda.kubernetes_client.paths import api_path
from voda.kubernetes_client.reflector import Reflector

_log = logging.getLogger(__name__)

_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/pods"
_LIMIT_RANGES: Final = "limitranges"
_RUNTIME_CLASSES: Final = "runtimeclasses"
_TICK_S: Final = 1.0
_DISCOVER_S: Final = 60.0
"""An operator may be installed after voda was."""
_ABSENT_AFTER_S: Final = 30.0
"""After this long without a kind that jobs need, the mirror believes that the server does not serve it."""
_FETCH_AGAIN_S: Final = 5.0


class ClusterMirror:
    """Feeds an inventory; `put_object` takes in job objects, and `changed` is called after every change."""

    def __init__(
        self,
        api: Api,
        inventory: Inventory,
        setup: KubernetesSetup,
        *,
        put_object: OnJobChange,
        changed: Callable[[], None],
    ) -> None:
        self.api = api
        self.kinds: dict[str, JobKind] = {}
        """Name -> kind, of the job objects that are served."""
        self._inventory = inventory
        self._setup = setup
        self._changed = changed
        self.missing = MissingObjects(
            inventory=inventory, api=api, clock=setup.clock, kinds=self.kinds, jobs=setup.log.live_jobs
        )
        self._devices = DeviceDiscovery(
            api=api,
            stock=inventory.stock.devices,
            mirrored=lambda path, of, put, kept: self._reflector(path, of, partial(self._see, put), kept),
        )
        self.defaults = PodDefaults()
        self._pod_defaults = DefaultsDiscovery(
            api=api,
            defaults=self.defaults,
            mirrored=lambda path, of, put, kept: self._reflector(path, of, partial(self._see, put), kept),
        )
        self._subscribers: list[OnJobChange] = [put_object]
        self._reflectors: list[Reflector[Any]] = [
            self._reflector(_NODES, NodeObject, partial(self._see, inventory.put_node), lambda: inventory.stock.nodes),
            # All of them, and not only those of the namespaces of jobs: they hold what the nodes have.
            self._reflector(_PODS, Pod, partial(self._see, inventory.put_pod), lambda: inventory.pods_by_key),
        ]
        self._followed: set[tuple[str, str]] = set()
        """Kind and namespace of the job objects that are mirrored."""
        self._has_begun = asyncio.Event()
        """Set once it is known what is to be mirrored."""
        self._discovered_at = math.inf
        """When the server first said what it serves."""
        self._is_undiscovered = False
        """Whether the server did not say last time what it serves."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())
            while True:
                for reflector in await self._discover():
                    group.create_task(reflector.run())
                await asyncio.sleep(_DISCOVER_S if self._has_begun.is_set() else _TICK_S)

    async def synced(self) -> None:
        await self._has_begun.wait()
        for reflector in self._reflectors:
            await reflector.synced()

    @property
    def is_synced(self) -> bool:
        """Whether everything has been listed."""
        return self._has_begun.is_set() and all(reflector.is_synced for reflector in self._reflectors)

    @property
    def failure(self) -> str:
        """Why the mirror may be behind or lack something, one sentence; empty while all is well."""
        failures = (reflector.failure for reflector in self._reflectors if reflector.failure)
        return next(failures, served_kinds.failure(self.kinds) if self._has_begun.is_set() else "")

    def counts(self) -> Mapping[str, int]:
        counts = Counter[str]()
        for reflector in self._reflectors:
            counts[reflector.collection] += len(reflector.objects)
        return counts

    def subscribe(self, on_change: OnJobChange) -> None:
        self._subscribers.append(on_change)

    def jobs(self) -> Iterable[KubeJob]:
        return list(self._inventory.objects.values())

    def namespaces(self) -> Sequence[str]:
        chosen = self._setup.namespaces
        return sorted({*chosen, *(job.spec.namespace for job in self._setup.log.live_jobs())}) if chosen else [""]

    def kind_of(self, spec: JobSpec) -> JobKind:
        if (kind := self.kinds.get(spec.kind)) is None:
            if self._setup.kinds and spec.kind not in self._setup.kinds:
                raise ActionRefused(
                    f"job {spec.job_id}: this voda runs no {spec.kind}: cluster.kinds of its settings is"
                    f" {', '.join(self._setup.kinds)}"
                )
            raise ActionRefused(
                f"job {spec.job_id}: this cluster serves no {spec.kind}: install {KINDS[spec.kind].installed_by}"
                f" (served: {', '.join(sorted(self.kinds)) or 'none'})"
            )
        return kind

    def pods_of(self, job_id: str) -> Sequence[Pod]:
        job = self._inventory.object_of(job_id)
        return tuple(self._inventory.pods(job).values()) if job is not None else ()

    async def _discover(self) -> list[Reflector[Any]]:
        try:
            served = self._chosen(await _served(self.api))
            found = await self._devices.discover(self.namespaces())
            found += await self._pod_defaults.discover(self.namespaces())
        except (ClusterUnavailable, ActionRefused) as error:
            level = logging.DEBUG if self._is_undiscovered else logging.WARNING
            _log.log(level, "cannot ask which jobs are served reason=%s", error)
            self._is_undiscovered = True
            return []
        self._is_undiscovered = False
        for name, kind in served.items():
            known = self.kinds.setdefault(name, kind)
            for namespace in self.namespaces():
                if (name, namespace) not in self._followed:
                    self._followed.add((name, namespace))
                    see = partial(self._see_job, known)
                    kept = partial(self._kept_objects, known, namespace)
                    found.append(self._reflector(known.path(namespace), JobObject, see, kept))
        self._reflectors += found
        if not self._has_begun.is_set() and self._is_complete():
            if reason := served_kinds.failure(self.kinds):
                _log.warning("%s", reason)
            self._has_begun.set()
        return found

    def _chosen(self, served: Mapping[str, JobKind]) -> Mapping[str, JobKind]:
        """Return those of the kinds that the settings let voda run; it need not have rights to the others."""
        return {name: kind for name, kind in served.items() if not self._setup.kinds or name in self._setup.kinds}

    def _is_complete(self) -> bool:
        """Say whether the server serves every kind that jobs need, or has lacked one for long."""
        now = self._setup.clock.now()
        self._discovered_at = min(self._discovered_at, now)
        needed = {job.spec.kind for job in self._setup.log.live_jobs()}
        return needed <= self.kinds.keys() or now - self._discovered_at >= _ABSENT_AFTER_S

    def _kept_objects(self, kind: JobKind, namespace: str) -> Mapping[str, JobObject]:
        """Return the objects of a collection that the inventory has from its watch, by key, of one name the oldest."""
        found: dict[str, JobObject] = {}
        for uid, each in self._inventory.objects.items():
            meta = each.object.metadata
            if each.kind is kind and namespace in ("", meta.namespace) and not self.missing.is_unwatched(uid):
                found.setdefault(meta.key, each.object)
        return found

    def _reflector(
        self, path: str, of: type[Any], changed: Callable[[Any, Any], None], kept: Callable[[], Mapping[str, Any]]
    ) -> Reflector[Any]:
        setup = self._setup
        return Reflector(
            self.api,
            path,
            of,
            changed=changed,
            listed=lambda objects: _heal(path, kept(), objects, changed),
            clock=setup.clock,
            relist_s=setup.relist_s,
            telemetry=setup.telemetry,
        )

    def _see(self, put: Callable[[str, Any], None], before: Any, now: Any) -> None:
        key = (before if now is None else now).metadata.key
        with log_unexpected("mirroring", key):
            put(key, now)
        self._changed()

    def _see_job(self, kind: JobKind, before: Any, now: Any) -> None:
        name = (before if now is None else now).metadata.key
        for on_change in self._subscribers:
            with log_unexpected("mirroring", name):
                on_change(kind, before, now)
        self._changed()


def _heal(path: str, kept: Mapping[str, Any], listed: Mapping[str, Any], changed: Callable[[Any, Any], None]) -> None:
    """Pass on what the inventory keeps otherwise than the reflector: it lost an entry, or kept one that is gone."""
    differing = sorted(key for key in {*kept, *listed} if _is_behind(kept.get(key), listed.get(key)))
    if differing:
        _log.warning("the inventory differed path=%s count=%d first=%s", path, len(differing), differing[0])
    for key in differing:
        before, now = kept.get(key), listed.get(key)
        if before is not None and now is not None and before.metadata.uid != now.metadata.uid:
            changed(before, None)
            before = None
        changed(before, now)


def _is_behind(kept: Any, listed: Any) -> bool:
    """Say whether the inventory lacks what the reflector has, or the reverse; the answer to a write may be ahead."""
    if kept is None or listed is None:
        return kept is not listed
    if kept.metadata.uid != listed.metadata.uid:
        return True
    return is_older(kept.metadata, listed.metadata)


async def _served(api: Api) -> Mapping[str, JobKind]:
    """Return which kinds voda can run there, or raise ClusterUnavailable."""
    resources: dict[str, Mapping[str, Any] | None] = {}
    for path in served_kinds.VERSION_PATHS:
        resources[path] = await api.get(path, dict)
    return served_kinds.served(resources)


@dataclass(kw_only=True)
class DefaultsDiscovery:
    """Finds out which of what the cluster adds to pods may be mirrored; all else works without."""

    api: Api
    defaults: PodDefaults
    mirrored: MakeReflector
    _followed: set[str] = field(default_factory=set, init=False)
    """Paths."""
    _unlisted: set[str] = field(default_factory=set, init=False)
    """Those that may not be listed: an earlier installation gave no such rights."""

    async def discover(self, namespaces: Sequence[str]) -> list[Reflector[Any]]:
        """Return reflectors of what is not mirrored yet; ClusterUnavailable: the server does not answer."""
        defaults, found = self.defaults, list[Reflector[Any]]()
        for name, version, of, put, kept in (
            (_LIMIT_RANGES, "v1", LimitRange, defaults.put_limit_range, defaults.limit_ranges),
            (_RUNTIME_CLASSES, "node.k8s.io/v1", RuntimeClass, defaults.put_runtime_class, defaults.runtime_classes),
        ):
            for namespace in namespaces if name == _LIMIT_RANGES else ("",):
                path = api_path(version, name, namespace)
                if path not in self._followed and await self._may_list(path):
                    self._followed.add(path)
                    found.append(self.mirrored(path, of, put, partial(within, namespace, kept)))
        return found

    async def _may_list(self, path: str) -> bool:
        try:
            await self.api.list(path, PartialObject, ONE_OBJECT)
        except (ActionRefused, NotServed) as error:
            level = logging.DEBUG if path in self._unlisted else logging.WARNING
            _log.log(level, "what the cluster adds to pods is learned by refusals reason=%s", error)
            self._unlisted.add(path)
            return False
        return True


@dataclass(kw_only=True)
class MissingObjects:
    inventory: Inventory
    """Takes them in."""
    api: Api
    clock: Clock
    kinds: Mapping[str, JobKind]
    """Served by now, by name."""
    jobs: Callable[[], Iterable[Job]]
    """All live ones."""
    _fetched_at: dict[str, float] = field(default_factory=dict, init=False)
    """uid of an object that no watch has shown -> when it was fetched last."""

    def is_unwatched(self, uid: str) -> bool:
        """Say whether the inventory has an object from an answer alone."""
        return uid in self._fetched_at

    def watched(self, uid: str) -> None:
        """Note that a watch shows the object, and will show when it goes."""
        self._fetched_at.pop(uid, None)

    async def fetch(self, pool: str) -> None:
        """Fetch the objects of a pool's jobs that no watch has shown, or raise ClusterUnavailable."""
        known, fetched = self.inventory.objects, self._fetched_at
        for job in [job for job in self.jobs() if job.uid and (job.uid not in known or job.uid in fetched)]:
            kind = self.kinds.get(job.spec.kind)
            is_due = self.clock.now() - fetched.get(job.uid, -math.inf) >= _FETCH_AGAIN_S
            if job.spec.pool == pool and kind is not None and not job.is_canceling and is_due:
                await self._fetch(kind, job)

    async def _fetch(self, kind: JobKind, job: Job) -> None:
        path = kind.path(job.spec.namespace, job.spec.name or job.spec.job_id)
        found = await self.api.get(path, JobObject)
        is_there = found is not None and found.metadata.uid == job.uid
        if is_there and (job.uid not in self.inventory.objects or job.uid in self._fetched_at):
            self._fetched_at[job.uid] = self.clock.now()
            self.inventory.put_object(job.uid, kind, found)
        elif not is_there and self._fetched_at.pop(job.uid, None) is not None:
            self.inventory.put_object(job.uid, kind, None)
