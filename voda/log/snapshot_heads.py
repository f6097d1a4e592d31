"""The heads of all streams as they were kept with a snapshot.

Rule: they are read once somebody asks for them. They are there for proofs; a start needs the state alone, and a log of
years has hundreds of thousands of streams.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import msgspec

from voda.domain.errors import LogDamaged
from voda.events.envelope import Head
from voda.log.store import Snapshot

Rows = Mapping[str, tuple[int, str, int]]
"""Stream -> version, hash and epoch."""


class SnapshotHeads(Mapping[str, Head]):
    """Stream -> head.

    Args:
        decode: returns what was kept, or raises a MsgspecError.
        where: names the snapshot.
    """

    def __init__(self, decode: Callable[[], Rows], where: str) -> None:
        self._decode = decode
        self._where = where

    def __getitem__(self, stream: str) -> Head:
        return self._heads[stream]

    def __iter__(self) -> Iterator[str]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)

    def __repr__(self) -> str:
        return repr(self._heads)

    @cached_property
    def _heads(self) -> dict[str, Head]:
        """Raises LogDamaged where these are no heads."""
        try:
            return {stream: Head(*head) for stream, head in self._decode().items()}
        except msgspec.MsgspecError as error:
            raise LogDamaged(f"{self._where}: not the heads of streams ({error})") from error


def load_heads(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot, all of it read.

    Raises:
        LogDamaged: what was kept with it are no heads.
    """
    dict(snapshot.heads)
    return snapshot
