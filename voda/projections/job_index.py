"""All jobs ever submitted, with the id of the submitting event: some 55 bytes per job, for ever.

Rule: the index holds 64-bit digests of names and event ids, so that a million jobs fit into 55 MB; a plain dict would
take 150 MB more. Among a million jobs, a new id counts as an old one with a probability of 1 in 10^13.
"""

from array import array
from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

_TAIL: Final = 8_192
"""Newest digests in a dict, which is fast to add to, and large."""

_Tier = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]
"""Digests in ascending order, and the number of each one's job."""


class JobIndex:
    """Jobs in the order of their submissions, never forgotten."""

    def __init__(self) -> None:
        self._tail: dict[int, int] = {}
        self._tiers: list[_Tier] = []
        """From the oldest and largest to the newest; each at least twice as large as the next one."""
        self._names = bytearray()
        self._ends = array("Q")
        """Where each job's id ends in `_names`."""

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, job_id: str, event_id: str) -> None:
        """Add a job and the id of the event that submitted it. Costs O(log jobs), amortised."""
        number = len(self._ends)
        self._names += job_id.encode()
        self._ends.append(len(self._names))
        self._add_digest(_digest("job", job_id), number)
        self._add_digest(_digest("event", event_id), number)

    def has(self, job_id: str) -> bool:
        """Return whether such a job was ever submitted."""
        return self._number(_digest("job", job_id)) is not None

    def submitted_by(self, event_id: str) -> str | None:
        """Return the job that the event submitted."""
        number = self._number(_digest("event", event_id))
        if number is None:
            return None
        begin = self._ends[number - 1] if number else 0
        return self._names[begin : self._ends[number]].decode()

    def dump(self) -> bytes:
        tiers = [(keys.tobytes(), numbers.tobytes()) for keys, numbers in self._tiers]
        return msgspec.msgpack.encode((self._tail, tiers, bytes(self._names), self._ends.tobytes()))

    def load(self, state: bytes) -> None:
        kind = tuple[dict[int, int], list[tuple[bytes, bytes]], bytes, bytes]
        self._tail, tiers, names, ends = msgspec.msgpack.decode(state, type=kind)
        self._tiers = [(np.frombuffer(keys, np.uint64), np.frombuffer(of, np.uint32)) for keys, of in tiers]
        self._names, self._ends = bytearray(names), array("Q", ends)

    def _add_digest(self, digest: int, number: int) -> None:
        self._tail[digest] = number
        if len(self._tail) < _TAIL:
            return
        tier = np.array(list(self._tail), np.uint64), np.array(list(self._tail.values()), np.uint32)
        self._tail = {}
        self._tiers.append(_sorted(*tier))
        while len(self._tiers) > 1 and len(self._tiers[-2][0]) < 2 * len(self._tiers[-1][0]):
            newer, older = self._tiers.pop(), self._tiers.pop()
            self._tiers.append(
                _sorted(np.concatenate((older[0], newer[0])), np.concatenate((older[1], newer[1]))),
            )

    def _number(self, digest: int) -> int | None:
        if (number := self._tail.get(digest)) is not None:
            return number
        for keys, numbers in reversed(self._tiers):
            # If an id was submitted twice, the last one counts.
            at = int(np.searchsorted(keys, np.uint64(digest), side="right")) - 1
            if at >= 0 and int(keys[at]) == digest:
                return int(numbers[at])
        return None


def _digest(kind: str, name: str) -> int:
    """Python's own hash differs from one process to the next."""
    return int.from_bytes(blake2b(f"{kind}:{name}".encode(), digest_size=8).digest())


def _sorted(keys: npt.NDArray[np.uint64], numbers: npt.NDArray[np.uint32]) -> _Tier:
    order = np.argsort(keys, kind="stable")
    return keys[order], numbers[order]
