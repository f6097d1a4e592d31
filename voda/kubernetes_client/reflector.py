"""A reflector mirrors one collection of the API server: list, then watch, for ever.

Rules: bookmarks keep the resource version fresh; 410 lists again; a list every `relist_s` heals what a watch missed,
and counts it (drift); a broken connection is tried again with growing, jittered delays; one connection per collection.
Resource versions are compared for equality only: an object is replaced by the watch, or by a list from which the watch
then goes on, so that nothing ever goes back in time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final, Generic

from voda.backoff import delay_s
from voda.clock import Clock
from voda.domain.errors import ClusterUnavailable, VodaError
from voda.domain.rng import rng_at
from voda.kubernetes_client.api import Api, ObjectList, WatchEvent
from voda.kubernetes_client.collection import MirroredCollection, OnChange, T
from voda.kubernetes_client.errors import Gone, NotServed, Throttled, Unreachable
from voda.kubernetes_client.metadata import PartialObject
from voda.metrics import LAST_MIRROR_DRIFT, MIRROR_DRIFT, NO_TELEMETRY, Telemetry

_log = logging.getLogger(__name__)
_WATCH_S: Final = 300.0
_STEADY_S: Final = 10.0
"""A watch that lived as long was a success, whatever ended it."""
_AT_ONCE_S: Final = 1.0
_FIRST_DELAY_S: Final = 0.2
_LONGEST_DELAY_S: Final = 15.0
_STUBBORN: Final = 3
"""After this many answers in a row that refuse a watch, its version may be the reason: list again."""


class Reflector(Generic[T]):
    """Mirrors one collection, such as /api/v1/pods.

    `changed` is called with every difference (see MirroredCollection), from the first list on. `listed` is called with
    all objects after every list, so that whoever keeps them in a form of its own can compare. Telemetry takes how many
    objects each periodic relist had to heal, 0 too. After the server has denied for `absent_after_s` that there is such
    a collection, it counts as empty. The watch may be `lag_s` behind a list before what it did not bring counts as
    missed.
    """

    def __init__(  # noqa: PLR0913 - its ports
        self,
        api: Api,
        path: str,
        kind: type[T],
        *,
        changed: OnChange[T],
        clock: Clock,
        relist_s: float = 600.0,
        telemetry: Telemetry = NO_TELEMETRY,
        listed: Callable[[Mapping[str, T]], None] = lambda objects: None,
        absent_after_s: float = 30.0,
        lag_s: float = 5.0,
    ) -> None:
        self._mirrored: MirroredCollection[T] = MirroredCollection(changed)
        self.objects: Mapping[str, T] = self._mirrored.objects
        """See MirroredCollection."""
        self.failure = ""
        """Why it may be behind, one sentence; empty while it follows."""
        self._api = api
        self._path = path
        self._kind = kind
        self._compare = listed
        self._clock = clock
        self._relist_s = relist_s
        self._telemetry = telemetry
        self._absent_after_s = absent_after_s
        self._lag_s = lag_s
        self._absent_since: float | None = None
        self._chance = rng_at(0, f"{path} {clock.new_id()}")
        self._version = ""
        self._must_list = True
        self._failures = 0
        """In a row."""
        self._breaks = 0
        """Since the beginning."""
        self._watch_timeout: asyncio.Timeout | None = None
        """Of the present watch; shortening it ends the watch."""
        self._synced = asyncio.Event()
        self._listed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_for_ever())
            tasks.create_task(self._relist_for_ever())

    @property
    def collection(self) -> str:
        return self._path.rpartition("/")[2]

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    async def synced(self) -> None:
        await self._synced.wait()

    async def relist(self) -> None:
        """List now, beside the watch, and heal what differs.

        What the list shows and the watch has not brought a few seconds later, it missed: then everything is listed
        anew, and watched from there.

        Raises:
            ClusterUnavailable, ActionRefused: it cannot be listed.
        """
        await self.synced()
        breaks = self._breaks
        with self._mirrored.noting() as touched:
            listed = await self._api.list(self._path, PartialObject)
            missed = await self._mirrored.missed(listed, touched, lag_s=self._lag_s)
        if not missed:
            self._drifted(0)
            self._compare(self.objects)
            return
        # What a broken watch could not bring is no drift: it brings it once it works again.
        if not self.failure and breaks == self._breaks:
            _log.warning("watch missed changes path=%s count=%d first=%s", self._path, len(missed), min(missed))
            self._drifted(len(missed))
        await self._list_anew()

    def _drifted(self, objects: int) -> None:
        self._telemetry.count(MIRROR_DRIFT, self.collection, by=objects)
        self._telemetry.set(LAST_MIRROR_DRIFT, objects, self.collection)

    async def _list_anew(self) -> None:
        self._must_list = True
        self._listed.clear()
        if self._watch_timeout is not None and self._watch_timeout.when() is None:
            self._watch_timeout.reschedule(asyncio.get_running_loop().time())
        await self._listed.wait()

    async def _relist_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._relist_s * self._chance.uniform(0.9, 1.1))
            try:
                await self.relist()
            except VodaError as failed:
                _log.warning("relist failed path=%s error=%s", self._path, failed)

    async def _follow_for_ever(self) -> None:
        while True:
            try:
                if self._must_list:
                    await self._list()
                await self._watch()
            except VodaError as failed:
                self._note(failed)
                await asyncio.sleep(self._delay_s(failed))

    async def _list(self) -> None:
        # Cleared first: a list that is requested from here on is another one.
        self._must_list = False
        try:
            listed = await self._api.list(self._path, self._kind)
        except BaseException:
            self._must_list = True
            raise
        self._version = listed.resource_version
        self._absent_since = None
        self._replace(listed)
        self._synced.set()
        self._listed.set()

    async def _watch(self) -> None:
        """Follow until the server ends the watch, or a list is due."""
        span_s = int(_WATCH_S * self._chance.uniform(0.8, 1.2))
        query = {"timeoutSeconds": str(span_s)}
        began_at, brought = self._clock.now(), 0
        changes = self._api.watch(self._path, self._kind, after=self._version, query=query, opened=self._settle)
        try:
            async with asyncio.timeout(None) as self._watch_timeout, aclosing(changes):
                async for change in changes:
                    brought += 1
                    self._take(change)
        except TimeoutError:
            return
        finally:
            self._watch_timeout = None
            lived_s = self._clock.now() - began_at
            if brought or lived_s >= _STEADY_S:
                self._failures = 0
        if not brought and lived_s < _AT_ONCE_S:
            raise ClusterUnavailable(f"cannot watch {self._path}: the API server ends the watch at once")

    def _settle(self) -> None:
        if self.failure:
            _log.info("following again path=%s", self._path)
        self.failure = ""

    def _note(self, failed: VodaError) -> None:
        """Remember a failure, and what it takes to go on."""
        self._failures += 1
        self._breaks += 1
        level = logging.WARNING if self._failures == 1 and not isinstance(failed, Gone) else logging.DEBUG
        _log.log(level, "not following path=%s error=%s", self._path, failed)
        self.failure = str(failed)
        if isinstance(failed, NotServed):
            self._count_absence()
        else:
            self._absent_since = None
        is_refused = not isinstance(failed, Unreachable) and self._failures >= _STUBBORN
        if isinstance(failed, (Gone, NotServed)) or is_refused:
            self._must_list = True

    def _count_absence(self) -> None:
        """Take the collection for empty once the server has denied for long that there is one."""
        now = self._clock.now()
        self._absent_since = now if self._absent_since is None else self._absent_since
        if now - self._absent_since >= self._absent_after_s:
            self._replace(ObjectList(items=(), resource_version=""))
            self._synced.set()
            self._listed.set()

    def _delay_s(self, failed: VodaError) -> float:
        if isinstance(failed, Gone) and self._failures == 1:
            return 0.0
        span_s = delay_s(self._failures, first_s=_FIRST_DELAY_S, longest_s=_LONGEST_DELAY_S)
        span_s *= self._chance.uniform(0.5, 1.0)
        return max(span_s, failed.retry_after_s) if isinstance(failed, Throttled) else span_s

    def _take(self, change: WatchEvent[T]) -> None:
        self._version = change.resource_version
        if change.type == "BOOKMARK":
            return
        key = change.object.metadata.key
        self._mirrored.put(key, None if change.type == "DELETED" else change.object)

    def _replace(self, listed: ObjectList[T]) -> None:
        self._mirrored.replace(listed)
        self._compare(self.objects)
