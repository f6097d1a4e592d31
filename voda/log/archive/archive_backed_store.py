"""A log and its archive, read as one log; and a folder of segments, read as a log.

Rule: an event that the log still has is read from the log; the archive is opened only for older events.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock

from voda.domain.errors import InvalidInput, LogArchived, LogDamaged, StoreNotWritable
from voda.events.codec import body_of, unseal
from voda.events.envelope import Event, Head, Sealed
from voda.log.append_plan import Append
from voda.log.archive.archive import Archive
from voda.log.archive.segment import SegmentFile, SegmentHeader, events_of, header_of
from voda.log.store import PAGE_BYTES, DelegatingStore, DurableStore, EventStore, Snapshot, SnapshotStore, within_page
from voda.log.tail import TAIL_PAGE

_CACHED = 2
"""Segments kept in memory, about 50 MB each."""


class _NoSnapshots(SnapshotStore):
    """What an archive has for a SnapshotStore."""

    def __init__(self, place: str) -> None:
        self._place = place

    async def save(self, snapshot: Snapshot) -> None:
        raise StoreNotWritable(f"{self._place} is an archive, which cannot be written")

    async def latest(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        return None

    async def all(self) -> AsyncIterator[Snapshot]:
        none: Sequence[Snapshot] = ()
        for snapshot in none:
            yield snapshot


class SegmentStore(EventStore):
    """A folder of segments, as a log that can only be read."""

    def __init__(self, archive: Archive) -> None:
        self.place = str(archive.path)
        self.snapshots = _NoSnapshots(self.place)
        self.archive = archive
        self._headers: list[SegmentHeader] | None = None
        self._cached: dict[str, _LoadedSegment] = {}
        # Several threads may read.
        self._in_use = Lock()

    async def append_all(self, appends: Sequence[Append]) -> int:
        raise StoreNotWritable(
            f"{self.place} is an archive, which cannot be written: 'voda log copy' makes a log of it"
        )

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        return [unseal(sealed) for sealed in await asyncio.to_thread(self._read, after, limit, stream)]

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        return await asyncio.to_thread(self._read, after, limit, None)

    async def page_size(self, after: int, limit: int, *, stream: str | None = None) -> int:
        return within_page(await self.sizes(after, limit, stream=stream), limit)

    async def sizes(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[int]:
        """Return the bytes of up to `limit` events with position > `after`; of no more segments than make a page."""
        return await asyncio.to_thread(self._sizes, after, limit, stream)

    async def tail(self, after: int) -> AsyncIterator[Event]:
        """See EventStore.tail. Nothing comes after the last event."""
        while events := await self.read(after, TAIL_PAGE):
            for event in events:
                yield event
            after = events[-1].position
        await asyncio.Event().wait()

    async def position(self) -> int:
        return self.archive.position

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        return self.archive.position, (await asyncio.to_thread(self.archive.chain)).heads

    async def head(self, stream: str) -> Head:
        return (await self.heads()).get(stream, Head())

    async def close(self) -> None:
        """See EventStore.close."""

    def _read(self, after: int, limit: int, stream: str | None) -> list[Sealed]:
        with self._in_use:
            return [sealed for part in self._parts(after, limit, stream) for sealed in part]

    def _sizes(self, after: int, limit: int, stream: str | None) -> list[int]:
        with self._in_use:
            sizes: list[int] = []
            for part in self._parts(after, limit, stream):
                sizes += [len(sealed.body) for sealed in part]
                if sum(sizes) > PAGE_BYTES:
                    break
            return sizes

    def _parts(self, after: int, limit: int, stream: str | None) -> Iterator[Sequence[Sealed]]:
        """Yield what each segment has of the next events."""
        for index, segment in enumerate(self.archive.segments):
            if limit <= 0:
                break
            if segment.last > after and (stream is None or stream in self._header(index).heads):
                part = self._loaded(segment).read(after, limit, stream)
                limit -= len(part)
                yield part

    def _header(self, index: int) -> SegmentHeader:
        if self._headers is None:
            self._headers = [header_of(segment) for segment in self.archive.segments]
        return self._headers[index]

    def _loaded(self, segment: SegmentFile) -> "_LoadedSegment":
        found = self._cached.pop(segment.name, None) or _LoadedSegment(segment)
        self._cached[segment.name] = found
        while len(self._cached) > _CACHED:
            del self._cached[next(iter(self._cached))]
        return found


class _LoadedSegment:
    """A segment in memory."""

    def __init__(self, segment: SegmentFile) -> None:
        self._first = segment.first
        self._events = events_of(segment)
        if len(self._events) != segment.last - segment.after:
            raise LogDamaged(f"{segment.path}: positions are missing in it", segment.first)
        self._streams: dict[str, list[Sealed]] | None = None

    def read(self, after: int, limit: int, stream: str | None) -> Sequence[Sealed]:
        if stream is None:
            begin = max(0, after + 1 - self._first)
            return self._events[begin : begin + limit]
        if self._streams is None:
            self._streams = {}
            for sealed in self._events:
                self._streams.setdefault(body_of(sealed).stream, []).append(sealed)
        return [sealed for sealed in self._streams.get(stream, ()) if sealed.position > after][:limit]


class ArchiveBackedStore(DelegatingStore[DurableStore]):
    """An EventStore that reads events that the log has no more from a folder, by default the one that the log names."""

    def __init__(self, store: DurableStore, folder: Path | None = None) -> None:
        super().__init__(store)
        self.place = store.place
        self._folder = folder
        self._archive: SegmentStore | None = None
        self._opening = asyncio.Lock()

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        """See EventStore.read; raises LogArchived if the archive is not there."""
        try:
            return await self._store.read(after, limit, stream=stream)
        except LogArchived as error:
            archive, base = await self._archive_behind(error), error.base
        old = [event for event in await archive.read(after, limit, stream=stream) if event.position <= base]
        # The log itself returns the events after its base; they may be more than one page.
        return old if len(old) >= limit else [*old, *await self.read(base, limit - len(old), stream=stream)]

    async def page_size(self, after: int, limit: int, *, stream: str | None = None) -> int:
        """See EventStore.page_size; a page across the end of the archive has up to PAGE_BYTES of either."""
        try:
            return await self._store.page_size(after, limit, stream=stream)
        except LogArchived as error:
            archive, base = await self._archive_behind(error), error.base
        sizes = await archive.sizes(after, min(limit, base - after), stream=stream)
        old = within_page(sizes, len(sizes))
        left = limit - old
        return old if old < len(sizes) or not left else old + await self.page_size(base, left, stream=stream)

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        """See EventStore.read_sealed; raises LogArchived if the archive is not there."""
        try:
            return await self._store.read_sealed(after, limit)
        except LogArchived as error:
            archive, base = await self._archive_behind(error), error.base
        old = [sealed for sealed in await archive.read_sealed(after, limit) if sealed.position <= base]
        return old if len(old) >= limit else [*old, *await self.read_sealed(base, limit - len(old))]

    async def tail(self, after: int) -> AsyncIterator[Event]:
        while True:
            try:
                async for event in self._store.tail(after):
                    yield event
                    after = event.position
            except LogArchived as error:
                for event in await (await self._archive_behind(error)).read(after, TAIL_PAGE):
                    if event.position <= error.base:
                        yield event
                        after = event.position

    async def refuse_cut(self) -> None:
        await self._store.refuse_cut()

    async def _archive_behind(self, asked: LogArchived) -> SegmentStore:
        """Return the archive, proven to lead to the log's base."""
        async with self._opening:
            if self._archive is None or self._archive.archive.position < asked.base:
                self._archive = await self._open(asked)
            return self._archive

    async def _open(self, asked: LogArchived) -> SegmentStore:
        base = await self._store.base()
        folder = self._folder or (Path(base.folder) if base.folder else None)
        if folder is None:
            raise asked
        try:
            archive = await asyncio.to_thread(Archive.open, folder)
        except InvalidInput as error:
            raise LogArchived(f"{asked} ({error})", asked.base) from error
        chain = await asyncio.to_thread(archive.chain, base.position)
        if chain.heads != base.heads:
            raise InvalidInput(
                f"{folder} is not the archive of {self.place}: at position {base.position} their streams differ"
            )
        return SegmentStore(archive)
