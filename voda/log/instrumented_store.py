"""A store that measures every append and reports how it ended.

Rule: it changes nothing that the wrapped store promises.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from voda.clock import stopwatch
from voda.domain.errors import Fenced, StoreNotWritable, StoreUnavailable, VersionConflict
from voda.events.envelope import Fact
from voda.log.store import DelegatingStore, EventStore

Appended = Callable[[str, int, float], None]
"""(outcome, facts, seconds) -> nothing."""
OUTCOMES: Final[Mapping[type[Exception], str]] = {
    VersionConflict: "conflict",
    Fenced: "fenced",
    StoreUnavailable: "unavailable",
    StoreNotWritable: "not_writable",
}
"""Error of an append -> outcome; every other error is `failed`, success is `ok`."""


class InstrumentedStore(DelegatingStore[EventStore]):
    """An EventStore around another one.

    Args:
        store: the log.
        appended: called after every append.
    """

    def __init__(self, store: EventStore, appended: Appended) -> None:
        super().__init__(store)
        self._appended = appended

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        laps: list[float] = []
        outcome = "failed"
        try:
            with stopwatch(laps):
                position = await super().append(stream, expected_version, facts, epoch=epoch)
            outcome = "ok"
        except Exception as error:
            outcome = next((name for kind, name in OUTCOMES.items() if isinstance(error, kind)), outcome)
            raise
        finally:
            self._appended(outcome, len(facts), laps[0])
        return position
