"""Watches over the log of a running service: whether it takes appends, and whether it still is what was written.

1. After an append that disk or database refused, it tries to write, so that the service is ready again by itself.
2. Once the service has settled, and every day from then on, it verifies the whole log in the background.

Rule: neither delays decisions and requests: a page is proven in milliseconds, and a pause follows that is many times as
long. A start reads the log from its newest snapshot on; only this looks at what lies before.
"""

import asyncio
import logging
import os
from hashlib import sha256
from typing import Final

from msgspec import Struct

from voda.concurrency import log_unexpected
from voda.domain.errors import LogDamaged, StoreNotWritable, VodaError
from voda.log.archive.verify import Pace, VerifyReport, verify_log
from voda.log.factory import display_name, open_store
from voda.log.instrumented_store import InstrumentedStore
from voda.log.store import Snapshot
from voda.metrics import LOG_DAMAGED, LOG_VERIFIED, NO_TELEMETRY, Telemetry

_log = logging.getLogger(__name__)

_TRIAL: Final = "trial-1"
"""Name of the snapshot that a trial writes: without a state, but with the true heads, as every snapshot has them."""
_TRIAL_BYTES: Final = 65_536
"""More than most appends take: where the trial finds room, so do they."""
_PAGE: Final = 200
"""Events; some milliseconds on the event loop."""
_PAUSES: Final = 9.0
"""A pause takes this many times what its page took. Whatever else was done meanwhile counts as well, so that a busy
service pauses for longer."""
_SHORTEST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 5.0


class HealthIntervals(Struct, frozen=True, kw_only=True):
    """The spans of the watch, seconds."""

    trial_s: float = 5.0
    """Between attempts to write, while the log takes none."""
    first_s: float = 5.0
    """From the start to the first verification: jobs are taken over meanwhile."""
    every_s: float = 86_400.0
    retry_s: float = 600.0
    """After a verification that could not be made."""


class LogHealth:
    """The health of one log.

    Args:
        store: the service's own.
        location: path or URL of the log; a verification reads it over a connection of its own.
        telemetry: shows what a verification found.
        intervals: shorter ones are for tests.
    """

    def __init__(
        self,
        store: InstrumentedStore,
        location: str,
        telemetry: Telemetry = NO_TELEMETRY,
        intervals: HealthIntervals | None = None,
    ) -> None:
        self.warning = ""
        """What the last verification found, one sentence; empty where the log is intact."""
        self._store = store
        self._location = location
        self._telemetry = telemetry
        self._intervals = intervals or HealthIntervals()

    @property
    def failure(self) -> str:
        """Why nothing can be recorded, one sentence; empty while the log takes what is appended."""
        return self._store.refusal

    async def follow(self) -> None:
        """Try to write again and again while the log takes no appends, until cancelled."""
        while True:
            await asyncio.sleep(self._intervals.trial_s)
            if self.failure:
                with log_unexpected("trying to write", "the log"):
                    await self._try_to_write()

    async def verify(self) -> None:
        """Verify the log in the background, after the start and every day, until cancelled."""
        await asyncio.sleep(self._intervals.first_s)
        while True:
            pause_s = self._intervals.retry_s
            with log_unexpected("verifying", "the log"):
                try:
                    self._report(await self._verified())
                    pause_s = self._intervals.every_s
                except VodaError as error:
                    # Such as a store that is away, or events that were archived meanwhile.
                    _log.info("log not verified reason=%s", error)
            await asyncio.sleep(pause_s)

    async def _try_to_write(self) -> None:
        position, heads = await self._store.ends()
        state = os.urandom(_TRIAL_BYTES)
        trial = Snapshot(name=_TRIAL, position=position, state=state, state_hash=sha256(state).hexdigest(), heads=heads)
        try:
            await self._store.snapshots.save(trial)
        except StoreNotWritable as error:
            self._store.refusal = str(error)
        except VodaError as error:
            _log.info("log not tried reason=%s", error)
        else:
            self._store.refusal = ""
            _log.info("the log takes appends again position=%d", position)

    async def _verified(self) -> VerifyReport:
        try:
            store = await open_store(self._location, read_only=True)
        except LogDamaged as error:
            return VerifyReport.of_unreadable(error)
        # Its own connection: the service's is not kept busy.
        try:
            return await verify_log(store, pace=Pace(_PAGE, _IdlePause()))
        finally:
            await store.close()

    def _report(self, report: VerifyReport) -> None:
        self._telemetry.set(LOG_DAMAGED, not report.is_intact)
        self._telemetry.set(LOG_VERIFIED, report.events)
        before, name = self.warning, display_name(self._location)
        self.warning = _warning(report, name)
        if report.is_intact:
            _log.info("log verified position=%d", report.events)
        elif self.warning != before:
            where = report.damaged_at if report.damaged_at is not None else "none"
            _log.error("log damaged position=%s reason=%s; see `voda log verify %s`", where, report.problem, name)


class _IdlePause:
    """Pauses between pages, for longer the more the process has to do."""

    def __init__(self) -> None:
        self._resumed_at = _now()

    async def __call__(self) -> None:
        pause_s = _PAUSES * (_now() - self._resumed_at)
        await asyncio.sleep(min(max(pause_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))
        self._resumed_at = _now()


def _warning(report: VerifyReport, name: str) -> str:
    """Return a sentence without what the log says: everybody may read it."""
    if report.is_intact:
        return ""
    where = f" at position {report.damaged_at}" if report.damaged_at is not None else ""
    return f"the log is damaged{where}: `voda log verify {name}` says how, docs/backup.md what to do"


def _now() -> float:
    return asyncio.get_running_loop().time()
