"""The index of a log, in segments: which event is where in the stream. Pure.

Rule: a segment is a function of the log alone, so all writers write the same, and a lost segment can be made again.
It has hashes of ids and names: a match is a candidate, and the event itself decides.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from zlib import crc32

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

SEGMENT_EVENTS = 65_536
"""A segment is closed by the first group that brings it to this many events."""

_HASH_BYTES = 8
_Hashes = NDArray[np.uint64]
_Positions = NDArray[np.int64]


class IndexSegment(Struct, array_like=True):
    """Some 65,536 events of the log, one after the other; the last segment grows."""

    after: int
    """Position before the first event."""
    hashes: bytearray = bytearray()
    """Shape (events,), uint64: of their ids."""
    streams: bytearray = bytearray()
    """Shape (events,), uint32: hashes of their streams' names."""
    positions: bytearray = bytearray()
    """Shape (groups,), int64: position of each group's first event, ascending."""
    sequences: bytearray = bytearray()
    """Shape (groups,), int64: sequence of each group's message."""

    def __len__(self) -> int:
        return len(self.hashes) // _HASH_BYTES

    @property
    def last(self) -> int:
        """Position of its last event."""
        return self.after + len(self)

    def add(self, sequence: int, events: Sequence[tuple[str, str]]) -> None:
        """Add a group: the sequence of its message, and stream and id of each of its events."""
        self.positions += np.int64(self.last + 1).tobytes()
        self.sequences += np.int64(sequence).tobytes()
        self.streams += array("I", [crc32(stream.encode()) for stream, _ in events]).tobytes()
        self.hashes += _hashes_of(event_id for _, event_id in events).tobytes()

    def sequence_of(self, position: int) -> int:
        """Return the sequence of the message with an event of the segment."""
        found = int(np.searchsorted(np.frombuffer(self.positions, np.int64), position, "right")) - 1
        return int(np.frombuffer(self.sequences, np.int64)[found])

    def positions_of(self, stream: str, after: int) -> Sequence[int]:
        """Return the positions behind `after` that events of a stream may have, ascending."""
        same = np.frombuffer(self.streams, np.uint32) == crc32(stream.encode())
        found: list[int] = (np.flatnonzero(same) + self.after + 1).tolist()
        return found[bisect_right(found, after) :]


class IdIndex:
    """The ids of all closed segments. An id that it does not find is new; one that it finds has to be looked up."""

    def __init__(self) -> None:
        self.segments = 0
        """So many were added."""
        # Hashes, sorted, and positions; each run at least twice as long as the next, so that a search looks into few.
        self._runs: list[tuple[_Hashes, _Positions]] = []

    def add(self, segment: IndexSegment) -> None:
        hashes = np.frombuffer(bytes(segment.hashes), np.uint64)
        positions = np.arange(segment.after + 1, segment.last + 1)
        while self._runs and len(self._runs[-1][0]) < 2 * len(hashes):
            longer = self._runs.pop()
            hashes, positions = np.concatenate([longer[0], hashes]), np.concatenate([longer[1], positions])
        order = np.argsort(hashes)
        self._runs.append((hashes[order], positions[order]))
        self.segments += 1

    def candidates(self, ids: Sequence[str]) -> Mapping[str, Sequence[int]]:
        """Return the positions that each id may have; an id that is not in the result is not in the log."""
        found: dict[str, list[int]] = {}
        wanted = _hashes_of(ids)
        for hashes, positions in self._runs:
            first, last = np.searchsorted(hashes, wanted, "left"), np.searchsorted(hashes, wanted, "right")
            for index in np.flatnonzero(first < last).tolist():
                found.setdefault(ids[index], []).extend(positions[first[index] : last[index]].tolist())
        return found


def _hashes_of(ids: Iterable[str]) -> _Hashes:
    """Return 64 bits for each id."""
    return np.frombuffer(
        b"".join([blake2b(name.encode(), digest_size=_HASH_BYTES).digest() for name in ids]), np.uint64
    )
