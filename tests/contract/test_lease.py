"""What is promised of a Lease that the log's own store keeps, and of who leads by it; Kubernetes' own is proven beside
its API server, in tests/integration/kubernetes/test_lease_claims.py.
"""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from tests import nats
from tests.contract.candidate import TERMS, Candidate
from tests.contract.lease_claims import EnforcedLeaseClaims, holder_of, taken
from tests.nats import NatsServer
from tests.postgres import Server, serving
from tests.relay import relayed
from tests.waiting import DEADLINE_S, until, until_it_is, wait_until
from voda.app.election import ElectionTimeouts
from voda.app.leadership import Leadership
from voda.clock import SystemClock
from voda.controller.leader_epochs import LeaderEpochs
from voda.domain.errors import ChangedMeanwhile, InvalidInput, StoreUnavailable, VodaError
from voda.domain.lease import LeaseStore
from voda.events.types import LEADERSHIP
from voda.log.factory import lease_of, migrate_log, open_store
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.url import parse_url
from voda.log.memory import MemoryStore
from voda.log.sql.postgres import PostgresDatabase

CLOCK = SystemClock()
PATIENT = ElectionTimeouts(duration_s=60.0, renew_deadline_s=40.0, retry_s=0.4)
"""Where nobody is to be silent: a machine that is busy for some seconds ends no leadership."""


class StoreBench:
    """Candidates with stores of their own on one log."""

    def __init__(self, log: str, stack: AsyncExitStack) -> None:
        self.log = log
        self._stack = stack

    async def candidate(self) -> LeaseStore:
        store = await open_store(self.log)
        self._stack.push_async_callback(store.close)
        keeper = lease_of(store, clock=CLOCK)
        self._stack.push_async_callback(_let_go, keeper)
        return keeper


async def _let_go(keeper: LeaseStore) -> None:
    """Do what every campaign does at its end."""
    with suppress(VodaError):
        lease = await keeper.read()
        if lease is not None:
            await keeper.release(lease)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


@pytest.mark.postgres
class TestPostgres(EnforcedLeaseClaims):
    @pytest.fixture
    async def bench(self, postgres_database: str, stack: AsyncExitStack) -> StoreBench:
        await PostgresDatabase.migrate(postgres_database)
        return StoreBench(postgres_database, stack)

    async def test_holder_when_its_session_is_ended_by_hand_is_told_at_once(
        self, bench: StoreBench, postgres_server: Server
    ) -> None:
        first, second = await bench.candidate(), await bench.candidate()
        mine = await taken(first, "a", duration_s=60.0)
        ended = postgres_server.sql(
            bench.log,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'voda leads: a'",
        )
        assert ended == "1"

        async def is_told() -> None:
            async for lease in first.watch():
                if lease is not None and lease.holder == "":
                    return

        async with asyncio.timeout(DEADLINE_S):
            await is_told()
        with pytest.raises(ChangedMeanwhile, match="has ended"):
            await first.renew(mine)
        assert (await taken(second, "b", 2)).holder == "b"

    @pytest.mark.usefixtures("postgres_server")
    async def test_lease_when_the_server_was_restarted_is_left_to_its_holder_by_who_saw_it_held(
        self, stack: AsyncExitStack
    ) -> None:
        with serving() as server:
            url = server.create_database()
            await PostgresDatabase.migrate(url)
            bench = StoreBench(url, stack)
            first, second = await bench.candidate(), await bench.candidate()
            mine = await taken(first, "a", duration_s=60.0)
            assert await holder_of(second) == "a"
            server.stop()
            with pytest.raises((ChangedMeanwhile, StoreUnavailable)):
                await first.renew(mine)
            server.start()
            found = await second.read()
            assert found is not None
            # To be judged by how long it stands still, as the server does not know of its holder.
            assert (found.holder, found.is_enforced) == ("a", False)
            assert await holder_of(first) == ""
            await taken(first, "a", 2, duration_s=60.0)
            found = await second.read()
            assert found is not None
            assert (found.holder, found.is_enforced) == ("a", True)
            # All of the server's sessions have to end before it does.
            await stack.aclose()

    async def test_lease_when_a_pooler_swallows_its_settings_is_refused(
        self, bench: StoreBench, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = await bench.candidate()
        monkeypatch.setattr("voda.log.lease.postgres._SILENCE", "idle_session_timeout_of_tomorrow")
        with pytest.raises(InvalidInput, match="PostgreSQL 14 or newer, asked directly"):
            await taken(first, "a")


class TestJetStream(EnforcedLeaseClaims):
    @pytest.fixture
    async def bench(self, nats_server: NatsServer, stack: AsyncExitStack) -> StoreBench:
        url = nats_server.url()
        await migrate_log(url)
        return StoreBench(url, stack)

    async def test_lease_when_its_bucket_is_deleted_is_lost_to_its_holder(self, bench: StoreBench) -> None:
        first, second = await bench.candidate(), await bench.candidate()
        mine = await taken(first, "a", duration_s=60.0)
        async with await NatsConnection.open(parse_url(bench.log)) as hand:
            await (await hand.client()).jetstream().delete_key_value(f"{parse_url(bench.log).stream}-leases")
        assert (await first.read(), await second.read()) == (None, None)
        with pytest.raises(ChangedMeanwhile):
            await first.renew(mine)
        assert (await taken(second, "b", 2)).holder == "b"


class TestJetStreamCluster(EnforcedLeaseClaims):
    @pytest.fixture
    async def bench(self, nats_cluster: NatsServer, stack: AsyncExitStack) -> StoreBench:
        url = nats_cluster.url()
        await migrate_log(url)
        return StoreBench(url, stack)

    @pytest.mark.slow
    async def test_lease_when_the_node_that_leads_its_bucket_dies_stays_its_holders(
        self, bench: StoreBench, nats_cluster: NatsServer
    ) -> None:
        first, second = await bench.candidate(), await bench.candidate()
        await taken(first, "a", duration_s=60.0)
        node = await asyncio.to_thread(nats_cluster.leader, f"KV_{parse_url(bench.log).stream}-leases")
        node.kill()
        try:
            await until_it_is(lambda: _is_held(second, "a"))

            async def is_renewed() -> bool:
                with suppress(StoreUnavailable, ChangedMeanwhile):
                    # A renewal whose answer was lost may have been heeded.
                    own = await first.read()
                    return own is not None and (await first.renew(own)).holder == "a"
                return False

            await until_it_is(is_renewed)
        finally:
            await asyncio.to_thread(node.start)
            await asyncio.to_thread(nats_cluster.wait_until_healthy)


async def _is_held(keeper: LeaseStore, holder: str) -> bool:
    with suppress(StoreUnavailable):
        return await holder_of(keeper) == holder
    return False


async def test_log_of_one_machine_elects_nobody(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "voda.db")
    for log in (store, MemoryStore()):
        with pytest.raises(InvalidInput, match="elects no leader, expected one in PostgreSQL or NATS JetStream"):
            lease_of(log, clock=CLOCK)
    await store.close()


# ---- who leads: processes that are killed, frozen and cut off

JUDGES = [pytest.param("postgres", marks=pytest.mark.postgres), "nats"]

Start = Callable[..., Candidate]


@pytest.fixture
async def log(request: pytest.FixtureRequest) -> str:
    """An empty log, of the kind that the test names."""
    if request.param == "nats":
        url: str = request.getfixturevalue("nats_server").url()
    else:
        url = request.getfixturevalue("postgres_database")
    await migrate_log(url)
    return url


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start candidates, which are gone when the test ends."""
    started: list[Candidate] = []

    def start(log: str) -> Candidate:
        started.append(Candidate(log, tmp_path, f"c{len(started)}"))
        return started[-1]

    yield start
    for candidate in started:
        candidate.kill()


async def refuse_two_leaders(log: str, candidates: Sequence[Candidate]) -> None:
    """Fail where two led at once, or in one epoch, or the log's epochs do not rise."""
    moments = sorted((at, each.name, epoch) for each in candidates for at, epoch in each.led())
    turns = [name for name, _ in itertools.groupby(moments, key=lambda moment: moment[1:])]
    assert len(turns) == len(set(turns)), f"two led at once, or one again in an epoch that had ended: {turns}"
    led = [epoch for _, epoch in turns]
    assert led == sorted(set(led))
    store = await open_store(log)
    claimed = [event.epoch for event in await store.read(0, 10_000, stream=LEADERSHIP)]
    await store.close()
    assert claimed == sorted(set(claimed))


def lead_in_turn(start: Start, log: str) -> tuple[Candidate, Candidate]:
    """Return a leader and another candidate."""
    first = start(log)
    first.wait_until_leads()
    second = start(log)
    second.wait_until_it_stands_by()
    return first, second


@pytest.mark.slow
@pytest.mark.parametrize("log", JUDGES, indirect=True)
async def test_leader_when_killed_is_followed_within_10_s(log: str, start: Start) -> None:
    candidates = [start(log)]
    candidates[0].wait_until_leads()
    took_s: list[float] = []
    # A machine that stands still for some seconds makes any one of them late, but not every one.
    while len(took_s) < 3 and not (took_s and took_s[-1] < 10.0):
        candidates.append(start(log))
        candidates[-1].wait_until_it_stands_by()
        candidates[-2].kill()
        died_at = asyncio.get_running_loop().time()
        took_s.append(candidates[-1].wait_until_leads() - died_at)
    assert min(took_s) < 10.0, took_s
    await refuse_two_leaders(log, candidates)


@pytest.mark.slow
@pytest.mark.parametrize("log", JUDGES, indirect=True)
async def test_leader_when_told_to_end_hands_over(log: str, start: Start) -> None:
    first, second = lead_in_turn(start, log)
    first.terminate()
    assert first.process.returncode == 0, first.said()
    second.wait_until_leads()
    second.terminate()
    third = start(log)
    third.wait_until_leads()
    await refuse_two_leaders(log, [first, second, third])


@pytest.mark.slow
@pytest.mark.parametrize("log", JUDGES, indirect=True)
async def test_leader_when_frozen_is_followed_and_knows_once_it_goes_on(log: str, start: Start) -> None:
    first, second = lead_in_turn(start, log)
    first.freeze()
    led_until = first.led()[-1][0]
    # What it believed last, it believed of a Lease that it had renewed no longer ago than its deadline.
    assert second.wait_until_leads() - led_until > TERMS.duration_s - TERMS.renew_deadline_s
    first.thaw()
    second.kill()
    # It leads again, in a new epoch.
    first.wait_until_leads(asyncio.get_running_loop().time())
    assert len(first.epochs()) >= 2
    await refuse_two_leaders(log, [first, second])


@pytest.mark.slow
@pytest.mark.parametrize("log", JUDGES, indirect=True)
async def test_leader_when_cut_off_has_stopped_before_it_is_followed(log: str, start: Start) -> None:
    host = re.search(r"@(127\.0\.0\.1:\d+)/", log)
    assert host
    async with relayed(f"http://{host[1]}") as relay:
        first = start(log.replace(host[1], relay.url.removeprefix("http://"), 1))
        await asyncio.to_thread(first.wait_until_leads)
        second = start(log)
        relay.hang()
        await asyncio.to_thread(second.wait_until_leads)
        relay.cut()
        relay.flow()
        second.kill()
        await asyncio.to_thread(first.wait_until_leads, asyncio.get_running_loop().time())
    await refuse_two_leaders(log, [first, second])


@pytest.mark.slow
@pytest.mark.usefixtures("nats_server")  # skips where there is no binary
async def test_leader_when_nats_restarts_goes_on_or_is_followed(start: Start) -> None:
    with nats.serving() as server:
        log = server.url()
        await migrate_log(log)
        first, second = lead_in_turn(start, log)
        server.stop()
        back_at = asyncio.get_running_loop().time()
        server.start()
        wait_until(lambda: any(at > back_at for each in (first, second) for at, _ in each.led()), first.said)
        await refuse_two_leaders(log, [first, second])


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.usefixtures("postgres_server")
async def test_leader_when_postgres_restarts_leads_again_in_a_new_epoch(start: Start) -> None:
    with serving() as server:
        log = server.create_database()
        await PostgresDatabase.migrate(log)
        first, second = lead_in_turn(start, log)
        server.stop()
        back_at = asyncio.get_running_loop().time()
        server.start()
        wait_until(lambda: any(at > back_at for each in (first, second) for at, _ in each.led()), first.said)
        await refuse_two_leaders(log, [first, second])


# ---- in this process


@pytest.mark.parametrize("log", JUDGES, indirect=True)
async def test_two_candidates_when_they_take_turns_lead_in_ever_higher_epochs(log: str) -> None:
    led: list[tuple[str, int]] = []
    stores = {name: await open_store(log) for name in "ab"}
    candidates = {
        name: Leadership(lease_of(store, clock=CLOCK), LeaderEpochs(store, CLOCK), name, timings=PATIENT)
        for name, store in stores.items()
    }

    async def lead(name: str, epoch: int) -> None:
        led.append((name, epoch))
        await asyncio.Event().wait()

    def run(name: str) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(candidates[name].run(lambda epoch: lead(name, epoch)))

    running = {name: run(name) for name in "ab"}
    for turn in range(1, 6):
        await until(lambda: len(led) == turn)  # noqa: B023 - awaited here
        leader, epoch = led[-1]
        (other,) = set("ab") - {leader}
        await until(lambda: candidates[other].leader == leader)  # noqa: B023
        assert (candidates[leader].epoch, candidates[leader].is_leading, epoch) == (turn, True, turn)
        running[leader].cancel()
        await asyncio.gather(running[leader], return_exceptions=True)
        await until(lambda: len(led) > turn)  # noqa: B023
        running[leader] = run(leader)
    for task in running.values():
        task.cancel()
    await asyncio.gather(*running.values(), return_exceptions=True)
    for store in stores.values():
        await store.close()
    assert [epoch for _, epoch in led] == list(range(1, len(led) + 1))
