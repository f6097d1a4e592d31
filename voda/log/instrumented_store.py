"""A log whose appends are measured.

Rule: it changes nothing of what the log behind it promises.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from voda.clock import stopwatch
from voda.domain.errors import Fenced, StoreNotWritable, StoreUnavailable, VersionConflict
from voda.events.envelope import Event, Fact, Head, Sealed
from voda.log.store import EventStore, Snapshot
from voda.metrics import APPEND_DURATION, FACTS_APPENDED, NO_TELEMETRY, Telemetry

OUTCOMES: Final[Mapping[type[Exception], str]] = {
    VersionConflict: "conflict",
    Fenced: "fenced",
    StoreUnavailable: "unavailable",
    StoreNotWritable: "not_writable",
}
"""Of appends that fail in a way that is foreseen; `ok` and `failed` are the others."""


class TimedStore:
    """An EventStore around another one.

    Args:
        store: the log.
        telemetry: counts and times every append.
        appended: is called with the outcome of every append.
    """

    def __init__(
        self,
        store: EventStore,
        telemetry: Telemetry = NO_TELEMETRY,
        *,
        appended: Callable[[str], None] | None = None,
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._appended = appended

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        """See EventStore.append."""
        laps: list[float] = []
        outcome = "failed"
        try:
            with stopwatch(laps):
                position = await self._store.append(stream, expected_version, facts, epoch=epoch)
            outcome = "ok"
        except Exception as error:
            outcome = next((name for kind, name in OUTCOMES.items() if isinstance(error, kind)), outcome)
            raise
        finally:
            self._telemetry.observe(APPEND_DURATION, laps[0], outcome)
            if outcome == "ok":
                self._telemetry.count(FACTS_APPENDED, by=len(facts))
            if self._appended is not None:
                self._appended(outcome)
        return position

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        """See EventStore.read."""
        return await self._store.read(after, limit, stream=stream)

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        """See EventStore.read_sealed."""
        return await self._store.read_sealed(after, limit)

    def tail(self, after: int) -> AsyncIterator[Event]:
        """See EventStore.tail."""
        return self._store.tail(after)

    async def position(self) -> int:
        """See EventStore.position."""
        return await self._store.position()

    async def head(self, stream: str) -> Head:
        """See EventStore.head."""
        return await self._store.head(stream)

    async def heads(self) -> Mapping[str, Head]:
        """See EventStore.heads."""
        return await self._store.heads()

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """See EventStore.save_snapshot."""
        await self._store.save_snapshot(snapshot)

    async def latest_snapshot(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        """See EventStore.latest_snapshot."""
        return await self._store.latest_snapshot(name, at_most=at_most)

    async def close(self) -> None:
        """See EventStore.close."""
        await self._store.close()
