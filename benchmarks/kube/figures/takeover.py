"""How long nobody plans: the leader killed, and the leader told to end, until the standby's next plan.

Two replicas share a log in PostgreSQL and a Lease of the usual terms: 15 s, renewed every 2 s.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.kube.options import Options
from benchmarks.kube.plane import control_plane
from benchmarks.kube.replica import Replica
from benchmarks.kube.seeding import add_nodes, nodes
from benchmarks.kube.tail import Tail
from benchmarks.table import Row
from tests.kube import client as api
from tests.kube.client import Client
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import an_mpijob
from tests.postgres import serving
from voda.events.envelope import Event
from voda.events.types import LeaderElected, PlanAdopted
from voda.log.sql.postgres import PostgresDatabase

TITLE = "the leader goes, the standby plans"
_KILLS = 3
_HANDOVERS = 10
_NODES = 100
_LEASE_S = 15.0
_BETWEEN_S = 0.1
"""Jobs are submitted at this distance until the next leader has planned: there is always one to plan for."""
_BETWEEN_DEAD_S = 1.0
"""The same while nobody leads for long."""
_WITHIN_S = 60.0


class Pair:
    """A leader and a standby, the former replaced whenever it goes."""

    def __init__(self, plane: ControlPlane, folder: Path, log: str, stack: ExitStack) -> None:
        self._plane = plane
        self._folder = folder
        self._log = log
        self._stack = stack
        self._numbers = count(1)
        self.leader = self._started()
        self.standby = self.leader

    async def begin(self) -> None:
        """Wait for the first leader, and add a standby to it."""
        await self.leader.until_leads()
        self.standby = await self._added()

    async def replace(self) -> None:
        """Let the standby be the leader that it has become, and add another one."""
        await asyncio.to_thread(self.leader.process.wait, 30.0)
        self.leader = self.standby
        self.standby = await self._added()

    async def _added(self) -> Replica:
        added = self._started()
        await added.until("serves http")
        # It has begun to follow log and cluster a moment later; a standby in earnest has long done so.
        await asyncio.sleep(3.0)
        return added

    def _started(self) -> Replica:
        replica = Replica(self._plane, self._folder / f"replica-{next(self._numbers)}", self._log)
        self._stack.callback(replica.stop)
        return replica


async def run(options: Options) -> Sequence[Row]:
    """Return the seconds from the signal to the next leader's first plan in the log."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="voda-bench-")))
        log = stack.enter_context(serving()).create_database()
        await PostgresDatabase.migrate(log)
        plane = stack.enter_context(control_plane())
        pair = Pair(plane, folder, log, stack)
        async with Client(plane) as client, Tail(log) as tail:
            await add_nodes(client, nodes(_NODES))
            await pair.begin()
            handed = [await _lap(pair, client, tail, is_kill=False) for _ in range(options.scaled(_HANDOVERS))]
            killed = [await _lap(pair, client, tail, is_kill=True) for _ in range(options.scaled(_KILLS))]
    return list(_rows(killed, handed))


def _rows(killed: Sequence[float], handed: Sequence[float]) -> Iterator[Row]:
    goal = _LEASE_S + 1.0
    yield Row(what=f"leader killed to next plan, longest of {len(killed)}", figure=max(killed), unit="s", goal=goal)
    yield Row(what="the same, shortest", figure=min(killed), unit="s")
    yield Row(what=f"handed over to next plan, longest of {len(handed)}", figure=max(handed), unit="s", goal=1.0)
    yield Row(what="the same, p50", figure=float(np.median(handed)), unit="s")


async def _lap(pair: Pair, client: Client, tail: Tail, *, is_kill: bool) -> float:
    """Let the leader go, and return the seconds to the first plan of the next one."""
    await tail.rested(1.0)
    began = time.perf_counter()
    if is_kill:
        pair.leader.kill()
    else:
        pair.leader.terminate()
    load = asyncio.create_task(_load(client, _BETWEEN_DEAD_S if is_kill else _BETWEEN_S))
    try:
        await tail.until(lambda event: isinstance(event.data, LeaderElected), within_s=_WITHIN_S)
        _, planned = await tail.until(_is_plan, within_s=_WITHIN_S)
    finally:
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
    await pair.replace()
    await client.delete_all(api.MPIJOBS, "default")
    return planned - began


async def _load(client: Client, between_s: float) -> None:
    for number in count(1):
        name = f"job-{number}-{time.monotonic_ns()}"
        await client.create(api.MPIJOBS, an_mpijob(name, "default", 1, least=1, most=1, suspend=True))
        await asyncio.sleep(between_s)


def _is_plan(event: Event) -> bool:
    return isinstance(event.data, PlanAdopted)
