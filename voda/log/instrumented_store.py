"""A store that measures every append and reports how it ended.

Rule: it changes nothing that the wrapped store promises.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from voda.clock import stopwatch
from voda.domain.errors import Fenced, StoreNotWritable, StoreUnavailable, VersionConflict
from voda.log.append_plan import Append
from voda.log.store import DelegatingStore, EventStore
from voda.metrics import APPEND_DURATION, FACTS_APPENDED, NO_TELEMETRY, Telemetry

OUTCOMES: Final[Mapping[type[Exception], str]] = {
    VersionConflict: "conflict",
    Fenced: "fenced",
    StoreUnavailable: "unavailable",
    StoreNotWritable: "not_writable",
}
"""Error of an append -> outcome; every other error is `failed`, success is `ok`."""


class InstrumentedStore(DelegatingStore[EventStore]):
    """An EventStore around another one; `appended` is called with the outcome of every append."""

    def __init__(
        self,
        store: EventStore,
        telemetry: Telemetry = NO_TELEMETRY,
        *,
        appended: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(store)
        self.refusal = ""
        """Why the disk or the database did not take the last append; empty once it takes one."""
        self._telemetry = telemetry
        self._appended = appended

    async def append_all(self, appends: Sequence[Append]) -> int:
        laps: list[float] = []
        outcome = "failed"
        try:
            with stopwatch(laps):
                position = await super().append_all(appends)
            outcome, self.refusal = "ok", ""
        except Exception as error:
            outcome = next((name for kind, name in OUTCOMES.items() if isinstance(error, kind)), outcome)
            if isinstance(error, StoreNotWritable):
                self.refusal = str(error)
            raise
        finally:
            self._telemetry.observe(APPEND_DURATION, laps[0], outcome)
            if outcome == "ok":
                self._telemetry.count(FACTS_APPENDED, by=sum(len(append.facts) for append in appends))
            if self._appended is not None:
                self._appended(outcome)
        return position
