"""The index of a log: which event is where in the stream. Newest events in memory, older ones in segments. Pure.

Rule: a segment is a function of the log alone, so all writers write the same, and a lost segment can be made again.
It has hashes of ids and names: a match is a candidate, and the event itself decides.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

SEGMENT_EVENTS = 65_536
"""A segment is closed by the first group that brings it to this many events."""

_HASH_BYTES = 8
_Hashes = NDArray[np.uint64]


class IndexSegment(Struct, frozen=True, array_like=True):
    """Some 65,536 events of the log, one after the other."""

    after: int
    """Position before the first event."""
    hashes: bytes
    """Shape (events,), uint64: of their ids, sorted."""
    offsets: bytes
    """Shape (events,), uint32: position - after - 1 of each hash."""
    streams: bytes
    """Shape (events,), uint32: hashes of their streams' names."""
    positions: bytes
    """Shape (groups,), uint64: position of each group's first event, ascending."""
    sequences: bytes
    """Shape (groups,), uint64: sequence of each group's message."""

    @property
    def last(self) -> int:
        """Position of its last event."""
        return self.after + len(self.hashes) // _HASH_BYTES


class GroupBoundary(NamedTuple):
    """A point between two groups."""

    position: int
    """Of the last event before it."""
    sequence: int
    """Of the first message behind it."""


class OpenSegment:
    """The index of the events behind position `after`, where the last segment was closed."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.ids: dict[str, int] = {}
        self._streams = array("I")
        self._positions = array("Q")
        self._sequences = array("Q")

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, boundary: GroupBoundary, events: Sequence[tuple[str, str]]) -> None:
        """Add a group: stream and id of each of its events."""
        self._positions.append(boundary.position + 1)
        self._sequences.append(boundary.sequence)
        self._streams.extend([crc32(stream.encode()) for stream, _ in events])
        self.ids.update((event_id, position) for position, (_, event_id) in enumerate(events, boundary.position + 1))

    def boundary(self, position: int) -> GroupBoundary:
        found = bisect_right(self._positions, position) - 1
        return GroupBoundary(self._positions[found] - 1, self._sequences[found])

    @property
    def streams(self) -> bytes:
        """See IndexSegment."""
        return self._streams.tobytes()

    def segment(self) -> IndexSegment:
        """Return it in the form of a closed segment."""
        hashes = hashes_of(self.ids)
        order = np.argsort(hashes, kind="stable")
        ids = hashes[order].tobytes(), order.astype(np.uint32).tobytes()
        return IndexSegment(self.after, *ids, self.streams, self._positions.tobytes(), self._sequences.tobytes())


class IdIndex:
    """The ids of all closed segments. An id that it does not find is new; one that it finds has to be looked up."""

    def __init__(self) -> None:
        self._segments: list[tuple[int, _Hashes, NDArray[np.uint32]]] = []
        # Merged, each at least twice as long as the next, so that a search looks into few runs.
        self._runs: list[_Hashes] = []

    def __len__(self) -> int:
        return len(self._segments)

    def add(self, segment: IndexSegment) -> None:
        hashes = np.frombuffer(segment.hashes, np.uint64)
        self._segments.append((segment.after, hashes, np.frombuffer(segment.offsets, np.uint32)))
        run = hashes
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)

    def candidates(self, ids: Sequence[str]) -> Mapping[str, Sequence[int]]:
        """Return the positions that each id may have; an id that is not in the result is not in the log."""
        if not self._runs or not ids:
            return {}
        wanted = hashes_of(ids)
        hit = np.zeros(len(ids), bool)
        for run in self._runs:
            hit |= _contained(run, wanted)
        return {ids[index]: self._positions(wanted[index]) for index in map(int, np.flatnonzero(hit))}

    def _positions(self, wanted: Any) -> Sequence[int]:
        positions: list[int] = []
        for after, hashes, offsets in self._segments:
            first, last = np.searchsorted(hashes, wanted, "left"), np.searchsorted(hashes, wanted, "right")
            positions += [after + 1 + int(offset) for offset in offsets[first:last]]
        return positions


def hashes_of(ids: Iterable[str]) -> _Hashes:
    """Return 64 bits for each id."""
    return np.frombuffer(b"".join(blake2b(name.encode(), digest_size=_HASH_BYTES).digest() for name in ids), np.uint64)


def boundary_before(segment: IndexSegment, position: int) -> GroupBoundary:
    """Return the boundary before the group of an event of a closed segment."""
    positions = np.frombuffer(segment.positions, np.uint64)
    found = int(np.searchsorted(positions, position, "right")) - 1
    return GroupBoundary(int(positions[found]) - 1, int(np.frombuffer(segment.sequences, np.uint64)[found]))


def positions_of(stream: str, streams: bytes, after: int) -> NDArray[np.int64]:
    """Return the positions that events of a stream may have, ascending; see IndexSegment."""
    return np.flatnonzero(np.frombuffer(streams, np.uint32) == crc32(stream.encode())) + after + 1


def _contained(run: _Hashes, wanted: _Hashes) -> NDArray[np.bool_]:
    index = np.searchsorted(run, wanted)
    index[index == len(run)] = 0
    found: NDArray[np.bool_] = run[index] == wanted
    return found
