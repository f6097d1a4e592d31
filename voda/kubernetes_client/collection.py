"""The objects of a collection that is mirrored: every difference is told, and what a watch has missed is found.

Rule: resource versions are compared for equality only.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from voda.kubernetes_client.api import ObjectList
from voda.kubernetes_client.metadata import ObjectName, PartialObject


class MirroredObject(Protocol):
    @property
    def metadata(self) -> ObjectName: ...


T = TypeVar("T", bound=MirroredObject)
OnChange = Callable[[T | None, T | None], None]
"""(object before, object now) -> nothing; None = was or is not there. Called in the order of the changes."""


class MirroredCollection(Generic[T]):
    """The objects of one collection, as they were seen last; `changed` is called with every difference.

    Where a new object has an old one's name, it is called twice: it is gone, it is there.
    """

    def __init__(self, changed: OnChange[T]) -> None:
        self._objects: dict[str, T] = {}
        self.objects: Mapping[str, T] = MappingProxyType(self._objects)
        """`namespace/name` (or name) -> object; read-only."""
        self._changed = changed
        self._touched: list[set[str]] = []
        """For each block of `noting`, the keys that changed since it began."""
        self._has_touched = asyncio.Event()

    def put(self, key: str, now: T | None) -> None:
        """Take one object; None: it is gone."""
        for touched in self._touched:
            touched.add(key)
        self._has_touched.set()
        before = self._objects.get(key)
        if now is None:
            self._objects.pop(key, None)
        elif before is not None and before.metadata.resource_version == now.metadata.resource_version:
            return
        else:
            self._objects[key] = now
        if before is not None and now is not None and before.metadata.uid != now.metadata.uid:
            self._changed(before, None)
            before = None
        if before is not None or now is not None:
            self._changed(before, now)

    def replace(self, listed: ObjectList[T]) -> None:
        """Take all objects that there are."""
        there: dict[str, T] = {each.metadata.key: each for each in listed.items}
        # What cannot be read still exists: it stays as it was last read.
        there |= {key: self._objects[key] for key in listed.unread if key in self._objects}
        for key in [each for each in self._objects if each not in there]:
            self.put(key, None)
        for key, each in there.items():
            self.put(key, each)

    @contextmanager
    def noting(self) -> Iterator[Set[str]]:
        """Note the keys of what changes during the block."""
        touched: set[str] = set()
        self._touched.append(touched)
        try:
            yield touched
        finally:
            self._touched = [each for each in self._touched if each is not touched]

    async def missed(self, listed: ObjectList[PartialObject], touched: Set[str], *, lag_s: float) -> Set[str]:
        """Return the keys of what differs from a list, and still differs after the watch had time to bring it.

        Args:
            listed: what there is.
            touched: what has changed since the list was requested: see `noting`.
            lag_s: so long the watch may be behind.
        """
        there = {each.metadata.key: each.metadata.resource_version for each in listed.items}
        here = {key: each.metadata.resource_version for key, each in self._objects.items()}
        unread = set(listed.unread)
        differing = {key for key in there.keys() | here.keys() if there.get(key) != here.get(key)} - unread
        with suppress(TimeoutError):
            async with asyncio.timeout(lag_s):
                while differing - touched:
                    self._has_touched.clear()
                    await self._has_touched.wait()
        return differing - touched
