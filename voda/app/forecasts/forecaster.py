"""Keeps the forecasts fresh: lets a process of its own simulate the live state once a burst of changes is over, or an
expected change did not come.

Rule: nothing waits for a forecast; a forecast that cannot be made is absent, never wrong.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from voda.app.forecasts.process import Question
from voda.app.side_process import SideProcess, side_process
from voda.application.read_model import ReadModel
from voda.clock import Clock, stopwatch
from voda.concurrency import within
from voda.domain.plan import ExpectedTimes
from voda.events.envelope import Event

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 2.0
_SHARE: Final = 0.2
"""Largest share of one core that forecasting may take."""
_CALM_S: Final = 1.0
_LONGEST_BURST_S: Final = 10.0
_LIMIT_S: Final = 60.0
_RETRY_S: Final = 30.0
_IDLE_S: Final = 10.0
_MOST_JOBS: Final = 5_000
"""Live jobs of a pool; with more, none is forecast: the budget would be spent before the first of them starts."""
_LATE_S: Final = 30.0
"""How late an expected change may be before jobs are forecast anew."""
_PROCESS: Final = "voda.app.forecasts.process"
_decode = msgspec.msgpack.Decoder(dict[str, ExpectedTimes]).decode


class Forecaster:
    """Fills `View.forecasts`."""

    def __init__(self, log: str, view: ReadModel, clock: Clock, pools: Sequence[str]) -> None:
        self._log = log
        self._view = view
        self._clock = clock
        self._pools = pools
        self._is_due = asyncio.Event()

    def see(self, event: Event) -> None:
        if event.type != "action.failed":
            self._is_due.set()

    async def run(self) -> None:
        """Forecast for ever."""
        self._is_due.set()
        while True:
            # The process starts when there is something to forecast, and again when it failed.
            await self._is_due_within(seconds_until_stale(self._view.forecasts, self._clock.now()))
            if not self._forecast_pools():
                self._view.forecasts = {}
                self._is_due.clear()
                continue
            await calm(self._is_due)
            try:
                async with side_process(_PROCESS) as process:
                    # Not as an argument, which everybody on the machine can read: a URL may hold a password.
                    await process.send(self._log.encode())
                    await self._serve(process)
            except (OSError, EOFError, TimeoutError, msgspec.MsgspecError) as error:
                _log.warning("no forecast made reason=%r", error)
                self._view.forecasts = {}
                await asyncio.sleep(_RETRY_S)
                self._is_due.set()

    async def _serve(self, process: SideProcess) -> None:
        """Forecast whenever something changed, until nothing has for a while: an idle process wastes memory."""
        while True:
            self._is_due.clear()
            laps: list[float] = []
            with stopwatch(laps):
                await self._forecast(process)
            await asyncio.sleep(max(_PAUSE_S, laps[0] / _SHARE))
            if not await self._is_due_within(_IDLE_S):
                return
            await calm(self._is_due)

    def _forecast_pools(self) -> Sequence[str]:
        return [pool for pool in self._pools if 0 < len(self._view.cluster.jobs(pool)) <= _MOST_JOBS]

    async def _is_due_within(self, span_s: float | None) -> bool:
        await within(span_s, self._is_due.wait())
        return self._is_due.is_set()

    async def _forecast(self, process: SideProcess) -> None:
        now, forecasts = self._clock.now(), dict[str, ExpectedTimes]()
        for pool in self._forecast_pools():
            async with asyncio.timeout(_LIMIT_S):
                forecasts.update(await _answer(process, Question(pool=pool, position=self._view.position, now=now)))
        self._view.forecasts, self._view.forecast_at = forecasts, now


async def calm(changed: asyncio.Event) -> None:
    """Return once nothing has changed for a moment: until then others have more use of the cores; or if it goes on."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LONGEST_BURST_S):
            while changed.is_set():
                changed.clear()
                await asyncio.sleep(_CALM_S)


def seconds_until_stale(forecasts: Mapping[str, ExpectedTimes], now: float) -> float | None:
    """Return the seconds until the first forecast change would be late by _LATE_S; None: none is expected."""
    instants = [at for one in forecasts.values() for at in (one.starts_at, one.finishes_at) if at is not None]
    return max(0.0, min(instants) - now) + _LATE_S if instants else None


async def _answer(process: SideProcess, question: Question) -> Mapping[str, ExpectedTimes]:
    """Return the process's answer, or raise EOFError where it ended instead."""
    await process.send(msgspec.msgpack.encode(question))
    return _decode(await process.receive())
