"""Keeps the forecasts fresh: simulates the live state in a process of its own, whenever that changed.

Rule: nobody waits for a forecast; one that cannot be made is absent, never wrong.
"""

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Final

from voda.api.view import View
from voda.clock import Clock, stopwatch
from voda.events.envelope import Event
from voda.simulator.whatif.forecast import Forecast, forecast_in_process

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 2.0
_SHARE: Final = 0.2
"""Most of one core that forecasting may take."""
_LIMIT_S: Final = 60.0
_PR_SET_PDEATHSIG: Final = 1


class Forecaster:
    """Fills `View.forecasts`."""

    def __init__(self, view: View, clock: Clock, pools: Sequence[str]) -> None:
        self._view = view
        self._clock = clock
        self._pools = pools
        self._is_due = asyncio.Event()
        self._is_due.set()

    def see(self, event: Event) -> None:
        """Take note that something changed."""
        if event.type != "action.failed":
            self._is_due.set()

    async def run(self) -> None:
        """Forecast for ever."""
        while True:
            # A process of its own: a simulation takes seconds of a core, which the API cannot spare.
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=spawn, initializer=_be_modest) as process:
                try:
                    await self._serve(process)
                except (BrokenProcessPool, TimeoutError) as error:
                    # Another process is started; this one ends with its simulation, which has a budget of its own.
                    _log.warning("forecast failed reason=%r", error)
            await asyncio.sleep(_PAUSE_S)

    async def _serve(self, process: ProcessPoolExecutor) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            laps: list[float] = []
            with stopwatch(laps):
                await self._forecast(process)
            await asyncio.sleep(max(_PAUSE_S, laps[0] / _SHARE))

    async def _forecast(self, process: ProcessPoolExecutor) -> None:
        if not any(self._view.live.cluster.jobs(pool) for pool in self._pools):
            self._view.forecasts = {}
            return
        now, dump = self._clock.now(), self._view.live.dump()
        found: dict[str, Forecast] = {}
        loop = asyncio.get_running_loop()
        for pool in self._pools:
            async with asyncio.timeout(_LIMIT_S):
                made: Mapping[str, Forecast] = await loop.run_in_executor(process, forecast_in_process, dump, pool, now)
            found.update(made)
        self._view.forecasts, self._view.forecast_at = found, now


def _be_modest() -> None:
    """Yield to everybody else, leave Ctrl-C to the parent, and end with it."""
    os.nice(10)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
