"""One seed from its first step to its end: does a few steps, waits for rest, looks whether all is as it has to be.

Rule: rest is waited for by watching the cluster; what is not at rest in time is a failure, which tells the seed, the
step, what is wrong and where the log is.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from tests.e2e.kubernetes.service import refuse_unverified
from tests.kube import client as api
from tests.kube.mirror import TRANSIENT, Mirror
from tests.kube.peers.cluster import PeeredCluster
from tests.kube.peers.world import PeeredWorld
from tests.kube.world import DEADLINE_S
from tests.monkey.faults import FaultyHands
from tests.monkey.invariants import unknown, violations, violations_despite_quota, wrong_ends
from tests.monkey.steps import ENDS, Step, steps
from voda.controller.follower import catch_up
from voda.domain.errors import VodaError
from voda.domain.job import Phase
from voda.log.factory import open_store
from voda.log.store import EventStore
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.jobs.registry import JobRegistry

REST_S: Final = DEADLINE_S
"""Longer than any backoff of voda's or of a controller's; after it the cluster is stuck."""
_STRIDE: Final = 5
"""Steps between two rests."""
_VERIFIED: Final = 10
"""Rests between two verifications of the whole log."""
_LOOK_AGAIN_S: Final = 0.5
"""The log may grow while the cluster does not change."""
_POOL: Final = "v100"


class Stuck(AssertionError):
    """Something is not as it has to be."""


class Belief:
    """What the log leads to, folded as it grows."""

    def __init__(self, log: Path) -> None:
        self.live, self.registry = LiveCluster(), JobRegistry()
        self._log = log
        self._store: EventStore | None = None

    async def follow(self, stack: AsyncExitStack) -> None:
        """Fold what the log has more than before."""
        if self._store is None:
            store = self._store = await open_store(self._log, read_only=True)
            stack.push_async_callback(store.close)
        await catch_up(self._store, [self.live, self.registry], after=self.live.position)

    def ended(self) -> dict[str, Phase]:
        """Return name -> how it ended, of the jobs that have."""
        return {each.spec.name: each.phase for each in self.registry.jobs().values() if not each.is_live}

    def uids(self) -> set[str]:
        """Return the uids of all objects that the log knows of."""
        return {each.job.uid for each in self.registry.jobs().values()}


class Run:
    """See the module; made by `running`."""

    def __init__(self, hands: FaultyHands, seed: int, stack: AsyncExitStack) -> None:
        self.hands = hands
        self.diary: list[str] = []
        """What was done, and what came of it."""
        self._seed = seed
        self._stack = stack
        self._belief = Belief(hands.log)
        self._allowed: dict[str, set[Phase]] = {}
        """Name of a job -> how it may have ended."""
        self._changed = asyncio.Event()
        self._rests = 0

    async def go(self, count: int, progress: Callable[[int], None] = lambda done: None) -> None:
        """Do so many steps, then end all jobs; raise Stuck where something goes wrong."""
        await self._until(self._is_at_rest, "begin")
        for number, step in enumerate(islice(steps(self._seed), count), 1):
            await self._take(number, step)
            if number % _STRIDE == 0 or number == count:
                await self._rest(f"step {number}")
            progress(number)
        await self._end()

    async def watch(self, resource: api.Resource) -> None:
        """Notice whatever changes of a resource, for ever."""
        mirror = Mirror(self.hands.world.client, resource)
        mirror.on_change = lambda thing, is_there: self._changed.set()
        await mirror.run()

    async def _take(self, number: int, step: Step) -> None:
        if step.act in ENDS:
            self._allowed.setdefault(step.target, set()).add(ENDS[step.act])
        try:
            in_vain = await self.hands.do(step)
        except AssertionError as error:
            raise self._stuck(f"step {number}: {step}", [str(error)]) from error
        self._note(f"{number} {step}{f' (in vain: {in_vain})' if in_vain else ''}")

    def _note(self, what: str) -> None:
        self.diary.append(what)
        with (self.hands.folder / "steps").open("a") as file:
            file.write(f"{self._belief.live.position} {what}\n")

    async def _rest(self, where: str) -> None:
        await self._until(self._is_at_rest, where)
        self._rests += 1
        if self._rests % _VERIFIED == 0:
            await refuse_unverified(self.hands.log)

    async def _end(self) -> None:
        self._note("calm")
        await self.hands.calm()
        await self._rest("calm")
        for name in {job.spec.name for job in self._belief.live.jobs(_POOL).values()}:
            self._allowed.setdefault(name, set()).add(Phase.COMPLETED)
        await self._until(self._is_over, "the end of all jobs")
        await self._rest("the end")
        await refuse_unverified(self.hands.log)

    async def _is_over(self) -> list[str]:
        await self.hands.finish_all()
        await self._belief.follow(self._stack)
        return [f"{job_id} lives" for job_id in self._belief.live.jobs(_POOL)]

    async def _is_at_rest(self) -> list[str]:
        """Return what is wrong; two looks at the same log around it, so that it is one moment's."""
        await self._belief.follow(self._stack)
        position, scene = self._belief.live.position, await self.hands.scene()
        state = self._belief.live.state(_POOL)
        found = [
            *(violations_despite_quota if self.hands.has_quota else violations)(state, scene),
            *unknown(self._belief.uids(), scene),
            *wrong_ends(self._belief.ended(), self._allowed),
        ]
        found += [] if found else await self._unlike_mirrors()
        await self._belief.follow(self._stack)
        return found or ([] if self._belief.live.position == position else ["the log grows"])

    async def _unlike_mirrors(self) -> list[str]:
        async with asyncio.timeout(30.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.hands.port)
            try:
                return [str(each) for each in json.loads(await reader.read())]
            finally:
                writer.close()

    async def _until(self, wrong: Callable[[], Awaitable[list[str]]], where: str) -> None:
        """Wait until nothing is wrong any more; looked at again whenever the cluster changes."""
        found = ["nobody has looked yet"]

        async def is_right() -> bool:
            if (code := self.hands.voda.process.poll()) is not None:
                raise self._stuck(where, [f"voda ended by itself with {code}"])
            self._changed.clear()
            try:
                found[:] = await wrong()
            except (*TRANSIENT, VodaError, ValueError) as error:
                found[:] = [f"{type(error).__name__}: {error}"]
            if found:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN_S):
                        await self._changed.wait()
            return not found

        try:
            await self.hands.world.until_it_is(is_right, within_s=REST_S, what=f"rest after {where}")
        except Stuck:
            raise
        except AssertionError as error:
            raise self._stuck(where, [*found, str(error)]) from None

    def _stuck(self, where: str, found: list[str]) -> Stuck:
        done = "\n  ".join(self.diary[-25:])
        wrong = "\n  ".join(found)
        said = self.hands.voda.text[-3000:]
        return Stuck(
            f"seed {self._seed}, {where}:\n  {wrong}\nafter\n  {done}\nvoda said\n{said}\nthe log is {self.hands.log}"
        )


@asynccontextmanager
async def running(cluster: PeeredCluster, folder: Path, seed: int, *, has_claims: bool = False) -> AsyncIterator[Run]:
    """Make a world of its own on a cluster, start voda there, and watch both until the block ends."""
    async with PeeredWorld(cluster) as world, AsyncExitStack() as stack:
        hands = FaultyHands(world, folder, has_claims=has_claims)
        stack.callback(hands.end)
        await hands.begin()
        run = Run(hands, seed, stack)
        watching = [asyncio.create_task(run.watch(each)) for each in (api.NODES, api.PODS, *world.kinds)]
        stack.callback(lambda: [task.cancel() for task in watching])
        yield run
