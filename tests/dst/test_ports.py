"""The simulated log, Lease and cluster keep what their ports promise, as long as no fault is on.

Rule: the claims are those that the real adapters are held to, on virtual time.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

import pytest

from tests.builders import a_fact, a_node, a_spec
from tests.contract import test_event_store as store_claims
from tests.contract.cluster_claims import ActingCluster, Bench, ClusterClaims, Quiet
from tests.contract.lease_claims import LeaseClaims
from tests.dst.cluster import Pace, TrueCluster
from tests.dst.faults import Fault
from tests.dst.lease import LeaseConnection, SharedLease
from tests.dst.log import LogConnection, SharedLog
from tests.dst.loop import SeededLoop, run
from tests.dst.sight import ClusterConnection
from tests.dst.training import Training
from tests.dst.wire import Trouble
from tests.waiting import until, until_it_is
from voda.cluster.port import Notice
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.domain.lease import LeaseStore
from voda.domain.plan import HaltJob, StartJob
from voda.domain.rng import rng_at
from voda.events.types import WorkerExited, WorkerStarted
from voda.log.store import EventStore

pytestmark = pytest.mark.virtual_time
store = store_claims.store
globals().update(
    {
        name: claim
        for name, claim in vars(store_claims).items()
        if name.startswith("test_") and {"store", "open_log"} & inspect.signature(claim).parameters.keys()
    }
)


@pytest.fixture
async def open_log() -> store_claims.OpenLog:
    log = SharedLog(lambda events, by: None)

    async def connect() -> EventStore:
        return LogConnection(log, asyncio.get_running_loop(), rng_at(0), Trouble(), "test")

    return connect


async def _seen_by_three(store: EventStore) -> list[list[str]]:
    async with asyncio.timeout(3_600.0):
        tails = [asyncio.ensure_future(store_claims.taken(store.tail(0), 10)) for _ in range(3)]
        for number in range(10):
            await store.append("job.a", number, [a_fact(str(number))])
        return await asyncio.gather(*tails)


@pytest.mark.parametrize("seed", range(20))
def test_tails_of_one_connection_when_answers_are_slow_all_see_the_last_event(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_claims, "WAIT_S", 3_600)  # virtual ones
    loop, trouble = SeededLoop(rng_at(seed)), Trouble()
    trouble.begin(Fault(at_s=0.0, kind="store_slow", share=0.5))
    store = LogConnection(SharedLog(lambda events, by: None), loop, rng_at(seed, 1), trouble, "test")
    assert run(loop, _seen_by_three(store)) == [[str(number) for number in range(10)]] * 3
    loop.bury()
    loop.close()


class Bystander:
    """A world in which only the cluster is of interest; it runs as long as nobody ends it."""

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def later(self, span_s: float, act: Callable[..., object], *args: Any) -> object:
        return asyncio.get_running_loop().call_later(span_s, act, *args)

    def draw(self, bounds: tuple[float, float]) -> float:
        return bounds[1]

    def changed(self, what: str) -> None:
        return

    def trained(self, job_id: str, epochs: int, workers: int, epoch_s: float | None) -> None:
        return

    def training(self, spec: JobSpec) -> Training:
        return Training(epochs=1, epoch_s=1e9)


class SimulatedBench:
    """Of one node; workers come and go within milliseconds."""

    is_patient = False

    cluster: ActingCluster

    def __init__(self) -> None:
        self.truth = TrueCluster([a_node("n1")], Bystander(), Pace(start_s=(0.0, 0.01), end_s=(0.0, 0.02)))
        specs = {job_id: a_spec(job_id, max_replicas=4) for job_id in "ab"}
        self.sins: list[str] = []
        self._told: list[Notice] = []
        self.truth.listeners.append(lambda pool, notice: self._told.append(notice))
        self.cluster = ClusterConnection(
            self.truth,
            "default",
            asyncio.get_running_loop(),
            rng_at(0),
            Trouble(),
            now=asyncio.get_running_loop().time,
            specs=specs.get,
            sinned=self.sins.append,
        )

    def notices(self) -> Sequence[Notice]:
        return list(self._told)

    async def watch(self) -> AsyncIterator[Notice]:
        for told in count():

            def is_told(index: int = told) -> bool:
                return index < len(self._told)

            await until(is_told)
            yield self._told[told]

    def finish(self, job_id: str) -> None:
        self.truth.finish_job(job_id)

    async def fail_worker(self, job_id: str, index: int) -> None:
        self.truth.kill_worker(job_id, index)

    def refusing(self, match: str) -> AbstractContextManager[object]:
        return pytest.raises(ActionRefused, match=match)

    async def rest(self) -> None:
        quiet = Quiet()
        await until(lambda: quiet.holds(len(self._told)))

    async def until_it_is(self, holds: Callable[[], Awaitable[bool]]) -> None:
        await until_it_is(holds)


class TestCluster(ClusterClaims):
    """The claims."""

    @pytest.fixture
    async def bench(self) -> Bench:
        return SimulatedBench()

    async def test_watch_when_workers_come_and_go_tells_in_order(self, bench: SimulatedBench) -> None:
        told: list[Notice] = []

        async def watch() -> None:
            async for notice in bench.cluster.watch():
                told.append(notice)

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            await asyncio.sleep(0)
            await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
            await bench.cluster.apply(HaltJob(job_id="a"))
            await until(lambda: not bench.truth.workers)
            await until(lambda: len(told) == len(bench.notices()))
            watching.cancel()
        assert told == bench.notices()
        assert {type(notice) for notice in told} == {WorkerStarted, WorkerExited}

    async def test_start_where_the_gpus_were_seen_held_is_a_sin(self, bench: SimulatedBench) -> None:
        await bench.cluster.observe()
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 3))
        assert not bench.sins
        with pytest.raises(ActionRefused):
            await bench.cluster.apply(StartJob(job_id="b", nodes=("n1",) * 2))
        assert bench.sins == [
            "observed free: StartJob b ('n1', 'n1') needs 2 GPUs on n1, and 1 were free there when last seen"
        ]


class SimulatedLease:
    """Candidates of one Lease."""

    def __init__(self, is_enforced: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._lease = SharedLease(self._loop.time, is_enforced=is_enforced, note=lambda text: None)

    async def candidate(self) -> LeaseStore:
        return LeaseConnection(self._lease, self._loop, rng_at(0), Trouble())


class TestLease(LeaseClaims):
    """The claims."""

    @pytest.fixture(params=[False, True], ids=["compared", "enforced"])
    async def bench(self, request: pytest.FixtureRequest) -> SimulatedLease:
        return SimulatedLease(request.param)
