"""How long nobody leads after the leader was killed, where the log's own store elects: until the standby leads a pool.

Rule: real processes of `voda serve --cluster machine` on one log, with the terms of use; whenever one is killed, the
standby has followed for a while.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import perf_counter

from benchmarks.log.options import Options
from benchmarks.log.stores import STORES, place
from benchmarks.table import Row
from tests.served_process import ServedProcess

TITLE = "Failover: leader killed to the standby leading"
_KILLS = 5
_WITHIN_S = 120.0
_LOOK_S = 0.02
_STANDBY_S = 3.0
"""A standby in earnest has followed for long."""


class Pair:
    """A leader and a standby on one log; the dead are replaced."""

    def __init__(self, folder: Path, log: str) -> None:
        self._folder = folder
        self._log = log
        self._numbers = count(1)
        self.all: list[ServedProcess] = []

    async def add(self) -> ServedProcess:
        """Start one more, and return once it serves."""
        said = self._folder / f"said-{next(self._numbers)}"
        options = ["--home", str(self._folder / "home"), "--log", self._log, "--port", "0", "--slots", "2", "--verbose"]
        added = ServedProcess(said, ["serve", "--cluster", "machine", *options])
        self.all.append(added)
        await _until(lambda: added.url or added.is_over())
        if not added.url:
            raise RuntimeError(f"voda serve has ended; it said:\n{added.text[-4000:]}")
        return added

    async def led(self) -> ServedProcess:
        """Return who leads, once somebody does."""
        await _until(lambda: any(each.leads for each in self.all))
        return next(each for each in self.all if each.leads)

    async def kill(self) -> float:
        """Kill the leader, and return the seconds until the other one leads."""
        leader = await self.led()
        begun = perf_counter()
        leader.kill()
        self.all.remove(leader)
        await self.led()
        return perf_counter() - begun


async def run(options: Options) -> Sequence[Row]:
    """Return the longest time on each store."""
    rows: list[Row] = []
    for name in options.stores or STORES:
        async with place(name) as log, _pair(log) as pair:
            spans_s: list[float] = []
            for _ in range(options.scaled(_KILLS)):
                await pair.add()
                await asyncio.sleep(_STANDBY_S)
                spans_s.append(await pair.kill())
        what = f"{name}: leader killed to the next one leading, longest of {len(spans_s)}"
        rows.append(Row(what=what, figure=max(spans_s), unit="s", goal=10.0))
        rows.append(Row(what=f"{name}: the same, shortest", figure=min(spans_s), unit="s"))
    return rows


@asynccontextmanager
async def _pair(log: str) -> AsyncIterator[Pair]:
    """Yield a leader, to which a standby is to be added; none of them outlives the block."""
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
        pair = Pair(Path(folder), log)
        try:
            await pair.add()
            await pair.led()
            yield pair
        finally:
            for each in pair.all:
                each.kill()


async def _until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(_WITHIN_S):
        # What other processes have said has no event.
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
