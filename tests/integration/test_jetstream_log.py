"""A log in NATS JetStream, among other writers, servers that die or freeze, and settings that would lose events."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import nats
import pytest

from tests import jetstream_logs
from tests.builders import a_fact, a_snapshot, seal
from tests.jetstream_logs import SEGMENT, batches_of, ids, opened
from tests.nats import PASSWORD, USER, NatsServer, serving
from tests.sqlite_logs import fill
from tests.waiting import until_it_is
from voda.domain.errors import (
    InvalidInput,
    LogArchived,
    LogDamaged,
    NotALog,
    StoreNotWritable,
    StoreUnavailable,
    VersionConflict,
)
from voda.events.envelope import ANY_VERSION, Event, Fact, Head
from voda.log.archive.copy import copy_log
from voda.log.archive.verify import verify_log
from voda.log.factory import display_name, open_log, open_store, sqlite_path
from voda.log.jetstream import state as state_module
from voda.log.jetstream.messages import encode_group
from voda.log.jetstream.store import JetStreamStore
from voda.log.jetstream.transport import stream as stream_module
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.url import parse_url
from voda.log.memory import MemoryStore
from voda.log.store import Base

pytestmark = pytest.mark.nats
WAIT_S = 240
"""Far more than it takes: servers are started several times within."""
url, store = jetstream_logs.url, jetstream_logs.store


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "SEGMENT_EVENTS", SEGMENT)


@pytest.fixture
def sure_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One server alone has no others from which it could be cut off."""
    monkeypatch.setattr(stream_module, "_SURE_S", 0.1)


async def taken(tail: AsyncIterator[Event], count: int) -> list[str]:
    async with asyncio.timeout(WAIT_S):
        return [(await anext(tail)).event_id for _ in range(count)]


# ---- servers that die, freeze and come back


class Load:
    """Writers that append one event after the other, again with the same id where nobody answers.

    Args:
        store: that they write to.
        writers: how many.
        each: events that every one of them writes.
    """

    def __init__(self, store: JetStreamStore, *, writers: int, each: int) -> None:
        self._store = store
        self._writers = writers
        self._each = each
        self.answered: dict[str, int] = {}
        """Event id -> position, of every append that was answered."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for writer in range(self._writers):
                group.create_task(self._write(writer))

    async def _write(self, writer: int) -> None:
        for number in range(self._each):
            fact = a_fact(f"{writer}.{number}")
            while fact.event_id not in self.answered:
                try:
                    self.answered[fact.event_id] = await self._store.append(f"job.{writer}", ANY_VERSION, [fact])
                except StoreUnavailable:
                    await asyncio.sleep(0.05)

    async def has_answered(self, count: int) -> None:
        async def holds() -> bool:
            return len(self.answered) >= count

        await until_it_is(holds, within_s=WAIT_S)


async def prove_nothing_lost(url: str, load: Load, seen: list[str]) -> None:
    """Compare the log, and what a tail has seen of it, with what was answered."""
    async with opened(url) as store:
        events = await store.read(0, 100_000)
        assert {event.event_id: event.position for event in events} == load.answered
        assert [event.position for event in events] == list(range(1, len(events) + 1))
        assert seen == [event.event_id for event in events]
        assert (await verify_log(store)).problem == ""


async def upset(server: NatsServer, url: str, harm: Callable[[int], None], *, times: int = 2) -> tuple[Load, list[str]]:
    """Write, and read along, while something happens to the servers again and again.

    Returns:
        What was written, and the ids of all events as a tail has seen them.
    """
    async with opened(url, timeout_s=4.0) as store, opened(url, timeout_s=4.0) as reader:
        load = Load(store, writers=4, each=60)
        seen = asyncio.ensure_future(taken(reader.tail(0), 240))
        async with asyncio.timeout(WAIT_S):
            running = asyncio.ensure_future(load.run())
            for number in range(times):
                await load.has_answered(60 * (number + 1) - 40)
                await asyncio.to_thread(harm, number)
            await running
            order = await seen
    await asyncio.to_thread(server.wait_until_healthy)
    return load, order


@pytest.mark.slow
async def test_server_killed_among_appends_loses_and_doubles_nothing() -> None:
    with serving() as server:
        url = server.url("log")
        await JetStreamStore.migrate(url)
        load, seen = await upset(server, url, lambda _: server.nodes[0].restart())
        await prove_nothing_lost(url, load, seen)


@pytest.mark.slow
async def test_leader_of_a_cluster_killed_among_appends_loses_and_doubles_nothing() -> None:
    with serving(3) as server:
        url = server.url("log")
        await JetStreamStore.migrate(url)
        load, seen = await upset(server, url, lambda _: server.leader("log").restart())
        await prove_nothing_lost(url, load, seen)


@pytest.mark.slow
async def test_leader_of_a_cluster_frozen_among_appends_loses_and_doubles_nothing() -> None:
    with serving(3) as server:
        url = server.url("log")
        await JetStreamStore.migrate(url)
        frozen = server.leader("log")

        def freeze_and_thaw(number: int) -> None:
            (frozen.thaw if number else frozen.freeze)()

        try:
            load, seen = await upset(server, url, freeze_and_thaw)
            await prove_nothing_lost(url, load, seen)
        finally:
            frozen.thaw()


@pytest.mark.slow
async def test_append_while_the_server_is_away_says_so_and_may_be_repeated() -> None:
    with serving() as server:
        url = server.url("log")
        await JetStreamStore.migrate(url)
        async with opened(url) as store:
            await store.append("job.a", 0, [a_fact("1")])
            # How long it is tried, once nobody answers.
            store._log.connection.timeout_s = 1.0
            tail = store.tail(1)
            waiting = asyncio.ensure_future(taken(tail, 1))
            await asyncio.to_thread(server.nodes[0].kill)
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await store.append("job.a", 1, [a_fact("2")])
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await open_store(url)
            await asyncio.to_thread(server.nodes[0].start)

            async def is_appended() -> bool:
                try:
                    return await store.append("job.a", 1, [a_fact("2")]) == 2
                except StoreUnavailable:
                    return False

            await until_it_is(is_appended, within_s=WAIT_S)
            assert await waiting == ["2"]


@pytest.mark.slow
@pytest.mark.usefixtures("sure_at_once")
async def test_servers_that_lost_their_tail_are_found_out_by_who_has_read_it(tmp_path: Path) -> None:
    with serving() as server:
        node, url = server.nodes[0], server.url("log")
        await JetStreamStore.migrate(url)
        async with opened(url, timeout_s=8.0) as store, opened(url, timeout_s=8.0) as other:
            await store.append("job.a", 0, [a_fact("1")])
            await asyncio.to_thread(node.kill)
            shutil.copytree(node.store, tmp_path / "older")
            await asyncio.to_thread(node.start)
            await store.append("job.a", 1, [a_fact("2"), a_fact("3")])
            await store.snapshots.save(a_snapshot("live-1", 3, b"state", heads=await store.heads()))
            assert await other.position() == 3
            await asyncio.to_thread(node.kill)
            shutil.rmtree(node.store / "jetstream" / "$G" / "streams" / "log")
            shutil.copytree(
                tmp_path / "older" / "jetstream" / "$G" / "streams" / "log",
                node.store / "jetstream" / "$G" / "streams" / "log",
            )
            await asyncio.to_thread(node.start)
            with pytest.raises(LogDamaged, match="position 3: the event that was here is gone"):
                await other.position()
            with pytest.raises(LogDamaged, match="lost events that they had acknowledged"):
                await store.append("job.a", 3, [a_fact("4")])
        with pytest.raises(LogDamaged, match="position 2: the log ends at 1 but once reached 3: its tail is cut"):
            await open_store(url)
        log = await open_store(url, read_only=True)
        assert (await verify_log(log)).damaged_at == 2
        await log.close()


@pytest.mark.slow
@pytest.mark.usefixtures("short_segments", "sure_at_once")
@pytest.mark.parametrize("how", ["flipped bit", "cut tail"])
async def test_damage_to_the_servers_file_is_told_with_its_position(how: str) -> None:
    with serving() as server:
        node, url = server.nodes[0], server.url("log")
        await JetStreamStore.migrate(url)
        async with opened(url) as store:
            for number in range(50):
                await store.append("job.a", 2 * number, [a_fact(f"{number}"), a_fact(f"{number}b")])
        await asyncio.to_thread(node.kill)
        (file,) = (node.store / "jetstream" / "$G" / "streams" / "log" / "msgs").glob("*.blk")
        data = bytearray(file.read_bytes())
        if how == "flipped bit":
            data[len(data) // 2] ^= 1
        else:
            del data[-100:]
        file.write_bytes(data)
        await asyncio.to_thread(node.start)
        with pytest.raises(LogDamaged) as caught:
            await open_store(url)
        position = caught.value.position
        assert position is not None
        assert position == 99 if how == "cut tail" else 40 < position < 60
        left = await open_store(url, read_only=True)
        verdict = await verify_log(left)
        assert (verdict.damaged_at, verdict.events) == (position, position - 1)
        assert [event.event_id for event in await left.read(position - 3, 1)] == [str((position - 3) // 2)]
        await left.close()


# ---- several writers


@pytest.mark.slow
async def test_processes_that_write_at_the_same_time_leave_no_gap(url: str, store: JetStreamStore) -> None:
    program = """
import asyncio, sys
from tests.builders import a_fact
from voda.log.factory import open_store

async def main(url, name):
    store = await open_store(url)
    for number in range(50):
        await store.append(f"job.{name}", number, [a_fact(f"{name}.{number}.{part}") for part in range(1)])
        await store.append("job.shared", -1, [a_fact(f"shared.{number}")])
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""
    tail = asyncio.ensure_future(taken(store.tail(0), 150))
    writers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, url, name, stderr=subprocess.PIPE)
        for name in ("a", "b")
    ]
    async with asyncio.timeout(WAIT_S):
        for writer in writers:
            _, said = await writer.communicate()
            assert writer.returncode == 0, said.decode()
    assert await tail == await ids(store)
    assert (await store.head("job.shared")).version == 50
    assert (await verify_log(store)).problem == ""


async def test_log_looked_at_while_it_is_written_to_counts_every_event_once(store: JetStreamStore) -> None:
    done = asyncio.Event()

    async def look() -> None:
        while not done.is_set():
            position, heads = await store.ends()
            assert position == sum(head.version for head in heads.values())
            assert len(await store.read(0, 10_000)) >= position

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(look())
        for number in range(100):
            assert await store.append(f"job.{number % 3}", ANY_VERSION, [a_fact(str(number))]) == number + 1
        done.set()
    assert (await verify_log(store)).events == 100


async def test_group_seen_before_its_answer_counts_once(store: JetStreamStore, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = store._log.stream.publish

    async def and_look(*arguments: Any, **options: Any) -> int:
        sequence = await publish(*arguments, **options)
        await store._log.sync()
        return sequence

    monkeypatch.setattr(store._log.stream, "publish", and_look)
    for number in range(3):
        assert await store.append("job.a", number, [a_fact(str(number))]) == number + 1
    assert await store.ends() == (3, {"job.a": await store.head("job.a")})
    assert await ids(store) == ["0", "1", "2"]


async def test_proof_after_a_lost_connection_is_not_confused_by_what_is_written_meanwhile(
    store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append("job.a", 0, [a_fact("1")])
    read = store._log.stream.all_behind

    async def while_another_is_written(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(store._log.stream, "all_behind", read)
        page = await read(*arguments, **options)
        await store.append("job.a", 1, [a_fact("2")])
        return page

    store._log._proven = -1
    monkeypatch.setattr(store._log.stream, "all_behind", while_another_is_written)
    assert await store.position() == 2


@pytest.mark.parametrize("fate", ["answer lost", "never sent", "late"])
async def test_append_whose_answer_is_lost_is_there_once(
    store: JetStreamStore, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    publish = store._log.stream.publish
    late: list[asyncio.Future[int]] = []

    async def lossy(*arguments: Any, **options: Any) -> int:
        monkeypatch.setattr(store._log.stream, "publish", publish)
        if fate == "answer lost":
            await publish(*arguments, **options)
        elif fate == "late":
            late.append(asyncio.ensure_future(_after(0.2, publish(*arguments, **options))))
        raise StoreUnavailable("no answer")

    await store.append("job.a", 0, [a_fact("1")])
    monkeypatch.setattr(store._log.stream, "publish", lossy)
    assert await store.append("job.a", 1, [a_fact("2"), a_fact("3")]) == 3
    await asyncio.gather(*late, return_exceptions=True)
    assert await store.append("job.a", 3, [a_fact("4")]) == 4
    assert await ids(store) == ["1", "2", "3", "4"]
    assert (await verify_log(store)).problem == ""


async def _after(seconds: float, doing: Coroutine[Any, Any, int]) -> int:
    await asyncio.sleep(seconds)
    return await doing


async def test_group_planned_behind_a_lost_race_does_not_count(store: JetStreamStore) -> None:
    await store.append("job.a", 0, [a_fact("1")])
    stale = encode_group([_row(1, "stale")], after=0, prev=b"", limit_bytes=100_000)
    # As if a server had not looked at what it was told to expect.
    await store._log.stream.publish(store._log.subject, stale.data)
    assert await store.append("job.a", 1, [a_fact("2")]) == 2
    assert await ids(store) == ["1", "2"]


def _row(position: int, event_id: str) -> tuple[int, str, int, str, str, float, bytes, str]:
    sealed = seal(a_fact(event_id), stream=f"job.{position}", head=Head(), epoch=0, position=position)
    return position, f"job.{position}", 1, event_id, "job.progressed", 0.0, sealed.body, sealed.hash


# ---- sizes


def large(event_id: str, size: int) -> Fact:
    return a_fact(event_id, actor="x" * size)


def incompressible(event_id: str, size: int) -> Fact:
    return a_fact(event_id, actor=os.urandom(size // 2).hex())


async def test_append_larger_than_a_message_is_whole_or_not_there(url: str, store: JetStreamStore) -> None:
    facts = [large(str(number), 300_000) for number in range(20)]
    assert await store.append("job.a", 0, facts) == 20
    async with opened(url) as other:
        assert [event.event_id for event in await other.read(4, 3)] == ["4", "5", "6"]
        assert await other.append("job.a", 20, [a_fact("last")]) == 21
        assert (await verify_log(other)).events == 21


async def test_appends_that_are_too_large_together_are_recorded_one_by_one(store: JetStreamStore) -> None:
    appends = [store.append(f"job.{number}", 0, [incompressible(str(number), 600_000)]) for number in range(9)]
    assert sorted(await asyncio.gather(*appends)) == list(range(1, 10))
    assert (await verify_log(store)).events == 9


async def test_events_too_large_together_are_taken_over_in_parts(store: JetStreamStore) -> None:
    memory = MemoryStore()
    for number in range(9):
        await memory.append(f"job.{number % 2}", ANY_VERSION, [incompressible(str(number), 600_000)], epoch=number // 4)
    assert (await copy_log(memory, store)).events == 9
    assert await store.ends() == await memory.ends()
    assert (await verify_log(store)).problem == ""


async def test_event_larger_than_the_server_takes_is_refused_and_its_neighbour_is_not(store: JetStreamStore) -> None:
    outcomes = await asyncio.gather(
        store.append("job.a", 0, [incompressible("1", 4_000_000)]),
        store.append("job.b", 0, [a_fact("2")]),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], InvalidInput)
    assert "raise max_payload" in str(outcomes[0])
    assert outcomes[1] == 1


async def test_snapshot_of_many_megabytes_is_kept_and_old_ones_are_dropped(store: JetStreamStore) -> None:
    state = os.urandom(1000) * 12_000
    for position in range(1, 11):
        await store.append("job.a", position - 1, [a_fact(str(position))])
        content = state if position == 10 else b"%d" % position
        await store.snapshots.save(a_snapshot("live 1.*", position, content, heads=await store.heads()))
    latest = await store.snapshots.latest("live 1.*")
    assert latest is not None
    assert latest.state == state
    assert [snapshot.position async for snapshot in store.snapshots.all()] == list(range(3, 11))
    marks = await store._log.marks.stream.api("INFO", {"subjects_filter": ">"})
    pieces = [subject for subject in marks["state"]["subjects"] if "-pieces." in subject]
    assert len(pieces) == 7 + -(-len(state) // (256 * 1024)) + (1 if len(state) % (256 * 1024) > 262_000 else 0)


# ---- segments


@pytest.mark.usefixtures("short_segments")
async def test_ids_and_streams_are_found_again_from_segments(url: str) -> None:
    async with opened(url) as store:
        for number in range(150):
            await store.append(f"job.{number % 3}", ANY_VERSION, [a_fact(str(number))])
        expected = await store.ends()
    async with opened(url) as store:
        assert await store.ends() == expected
        assert len(store._log.state.recent) == 150 % SEGMENT
        assert await store.append("job.new", ANY_VERSION, [a_fact("7")]) == 8
        assert await store.append("job.new", ANY_VERSION, [a_fact("149"), a_fact("41")]) == 42
        assert await ids(store, stream="job.1") == [str(number) for number in range(1, 150, 3)]
        assert [event.position for event in await store.read(60, 5, stream="job.2")] == [63, 66, 69, 72, 75]
        assert [event.position for event in await store.read(77, 6)] == [78, 79, 80, 81, 82, 83]
        assert (await verify_log(store)).problem == ""


@pytest.mark.usefixtures("short_segments")
async def test_segments_that_are_lost_are_made_again_from_the_events(url: str) -> None:
    async with opened(url) as store:
        for number in range(100):
            await store.append(f"job.{number % 3}", ANY_VERSION, [a_fact(str(number))])
    async with opened(url) as store:
        for key in await store._log.marks.keys("segment"):
            await store._log.marks.drop(key)
        assert await store.append("job.new", ANY_VERSION, [a_fact("7")]) == 8
        assert await ids(store, stream="job.1") == [str(number) for number in range(1, 100, 3)]


# ---- copies and archive


async def test_log_carried_to_nats_and_back_is_the_same_to_the_byte(store: JetStreamStore) -> None:
    memory = MemoryStore()
    for number in range(50):
        await memory.append(f"job.{number % 3}", -1, [a_fact(str(number), at=number / 3)], epoch=number // 20)
    back = MemoryStore()
    assert (await copy_log(memory, store)).events == 50
    assert (await copy_log(store, back)).events == 50
    assert await back.read_sealed(0, 100) == await memory.read_sealed(0, 100)
    assert (await verify_log(store)).problem == ""


async def test_events_of_another_log_are_taken_over_at_the_very_end_only(store: JetStreamStore) -> None:
    plans = list(batches_of(3))
    await store.take_over(plans[0], after=0)
    with pytest.raises(VersionConflict, match="expected its end at position 2, got 1"):
        await store.take_over(plans[2], after=2)
    await store.take_over(plans[1], after=1)
    assert await ids(store) == ["1", "2"]


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("until", [1, 5, SEGMENT, 63, 100])
async def test_forgotten_events_are_archived_and_what_is_left_follows(
    url: str, store: JetStreamStore, until: int
) -> None:
    for number in range(20):
        facts = [a_fact(str(5 * number + part)) for part in range(5)]
        await store.append(f"job.{number % 4}", ANY_VERSION, facts)
    heads: dict[str, Head] = {}
    for sealed, event in zip(await store.read_sealed(0, until), await store.read(0, until), strict=True):
        heads[event.stream] = Head(event.version, sealed.hash, 0)
    ends, left = await store.ends(), await store.read(until, 100)
    await store.forget(Base(position=until, heads=heads, folder="/archive"))
    async with opened(url) as other:
        for one in (store, other):
            assert await one.base() == Base(position=until, heads=heads, folder="/archive")
            assert await one.ends() == ends
            assert await one.read(until, 100) == left
            with pytest.raises(LogArchived, match=f"up to position {until} were archived to /archive"):
                await one.read(until - 1, 10)
            await one.refuse_cut()
        # An id that was forgotten is new.
        assert await other.append("job.a", 0, [a_fact("0")]) == 101
    with pytest.raises(InvalidInput, match="ends at position 101: it cannot forget up to 102"):
        await store.forget(Base(position=102))


# ---- safe by default


async def change(url: str, **settings: object) -> None:
    """Change a stream behind voda's back."""
    async with await NatsConnection.open(parse_url(url)) as connection:
        name = connection.location.stream
        config = (await connection.api(f"STREAM.INFO.{name}"))["config"]
        await connection.api(f"STREAM.UPDATE.{name}", {**config, **settings})


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("max_age", 3_600_000_000_000, "expected max_age=0, got 3600000000000"),
        ("max_msgs", 1000, "expected max_msgs=-1, got 1000"),
        ("max_msgs_per_subject", 100, "expected max_msgs_per_subject=-1, got 100"),
    ],
)
async def test_stream_that_would_lose_events_is_refused(url: str, setting: str, value: object, said: str) -> None:
    await change(url, **{setting: value})
    with pytest.raises(InvalidInput, match=said):
        await open_store(url)
    with pytest.raises(InvalidInput, match=said):
        await JetStreamStore.migrate(url)
    # It may still be carried away.
    await (await open_log(url)).close()


async def test_stream_that_drops_its_oldest_when_full_is_refused(url: str) -> None:
    await change(url, max_bytes=1_000_000, discard="old")
    with pytest.raises(InvalidInput, match="drops its oldest events when it is full"):
        await open_store(url)


async def test_full_stream_refuses_appends_and_loses_nothing(url: str) -> None:
    await change(url, max_bytes=200_000)
    async with opened(url) as store:
        await store.append("job.a", 0, [a_fact("1")])
        with pytest.raises(StoreNotWritable, match="cannot grow"):
            await store.append("job.a", 1, [incompressible("2", 300_000)])
        assert await store.append("job.a", 1, [a_fact("3")]) == 2
        assert await ids(store) == ["1", "3"]


async def test_purge_by_hand_is_damage(url: str) -> None:
    async with opened(url) as store:
        for number in range(5):
            await store.append("job.a", number, [a_fact(str(number))])
        await store._log.stream.api("PURGE", {"seq": 3})
    with pytest.raises(LogDamaged, match="position 1: the event is missing: the stream begins at message 3"):
        await open_store(url)


async def test_message_deleted_by_hand_is_damage_at_its_position(url: str) -> None:
    async with opened(url) as store:
        for number in range(5):
            await store.append("job.a", 2 * number, [a_fact(str(number)), a_fact(f"{number}b")])
        # Voda's streams do not allow it; as if the server's file had lost it.
        path = await _unprotected(url)
        assert path
    with pytest.raises(LogDamaged, match="position 5: the event is missing"):
        await open_store(url)
    log = await open_store(url, read_only=True)
    assert [event.position for event in await log.read(0, 4)] == [1, 2, 3, 4]
    assert (await verify_log(log)).damaged_at == 5
    await log.close()


async def _unprotected(url: str) -> bool:
    """Make the log's stream anew, less the third message."""
    async with await NatsConnection.open(parse_url(url)) as connection:
        name = connection.location.stream
        client = await connection.client()
        config = (await connection.api(f"STREAM.INFO.{name}"))["config"]
        kept = [(await client.jetstream().get_msg(name, sequence)).data or b"" for sequence in range(1, 6)]
        await connection.api(f"STREAM.DELETE.{name}")
        await connection.api(f"STREAM.CREATE.{name}", {**config, "deny_delete": False})
        for data in kept:
            await client.jetstream().publish(f"{name}.events", data)
        await connection.api(f"STREAM.MSG.DELETE.{name}", {"seq": 3})
        await connection.api(f"STREAM.UPDATE.{name}", {**config, "deny_delete": True})
    return True


@pytest.mark.parametrize("read_only", [True, False])
async def test_stream_that_answers_no_reader_is_named_and_mended_by_migrate(url: str, read_only: bool) -> None:
    await change(url, allow_direct=False)
    with pytest.raises(InvalidInput, match=r"expected allow_direct=true, got false; run 'voda log migrate nats://"):
        await open_store(url, read_only=read_only)
    await JetStreamStore.migrate(url)
    await (await open_store(url, read_only=read_only)).close()


_RIGHTS = """
authorization {{ users: [
  {{ user: {user}, password: {password}, permissions: {{
    publish: ["$JS.API.>", "voda.events", "voda_marks.>"], subscribe: ["_INBOX.>", "voda_grown"] }} }}
  {{ user: other, password: {password}, permissions: {{ publish: {{ deny: ["voda.events", "voda_marks.>"] }} }} }}
] }}
"""


@pytest.mark.slow
async def test_log_needs_the_rights_that_are_documented_and_nobody_else_may_publish_to_it() -> None:
    with serving(more=_RIGHTS.format(user=USER, password=PASSWORD)) as server:
        url = server.url("voda")
        await JetStreamStore.migrate(url)
        async with opened(url) as store:
            assert await store.append("job.a", 0, [a_fact("1")]) == 1
            assert await taken(store.tail(0), 1) == ["1"]
            other = await nats.connect(f"nats://other:{PASSWORD}@127.0.0.1:{server.nodes[0].port}")
            refused = asyncio.get_running_loop().create_future()

            async def on_error(error: Exception) -> None:
                refused.set_result(str(error))

            other._error_cb = on_error
            await other.publish("voda.events", b"theirs")
            async with asyncio.timeout(WAIT_S):
                assert "permissions violation" in (await refused).lower()
            await other.close()
            assert await store.append("job.a", 1, [a_fact("2")]) == 2


async def test_stream_of_another_application_is_left_alone(nats_server: NatsServer) -> None:
    url = nats_server.url()
    async with await NatsConnection.open(parse_url(url)) as connection:
        name = connection.location.stream
        await connection.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.x"], "storage": "file"})
    for attempt in (JetStreamStore.migrate(url), open_store(url)):
        with pytest.raises(NotALog, match="belongs to another application"):
            await attempt


async def test_stream_with_other_replicas_than_asked_for_is_refused_until_migrated(nats_cluster: NatsServer) -> None:
    url = nats_cluster.url()
    await JetStreamStore.migrate(url.replace("replicas=3", "replicas=1"))
    with pytest.raises(InvalidInput, match="has 1 replicas, the URL asks for 3"):
        await open_store(url)
    await JetStreamStore.migrate(url)
    await (await open_store(url)).close()


async def test_log_on_one_node_of_a_cluster_is_warned_of(
    nats_cluster: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = nats_cluster.url().replace("replicas=3", "replicas=1")
    await JetStreamStore.migrate(url)
    await (await open_store(url)).close()
    assert "the log is on one server of the cluster alone" in caplog.text


async def test_more_replicas_than_servers_are_refused(nats_server: NatsServer) -> None:
    with pytest.raises(InvalidInput, match="cannot keep as many replicas as asked for"):
        await JetStreamStore.migrate(nats_server.url().replace("replicas=1", "replicas=3"))


@pytest.mark.slow
async def test_server_that_answers_before_it_writes_is_refused_unless_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(sync="2m") as server:
        url = server.url("log")
        await JetStreamStore.migrate(url)
        with pytest.raises(InvalidInput, match="writes to the disk only every 120 s"):
            await open_store(url)
        await (await open_store(f"{url}&sync=any")).close()
        assert "a power cut loses events" in caplog.text
        unseen = url.partition("&monitor")[0]
        await (await open_store(unseen)).close()
        assert "it is not known whether the servers write to the disk" in caplog.text


async def test_log_that_was_never_made_is_refused(nats_server: NatsServer) -> None:
    with pytest.raises(NotALog, match="holds no voda log yet: run 'voda log migrate nats://voda@"):
        await open_store(nats_server.url())


async def test_wrong_password_is_refused_and_never_shown(nats_server: NatsServer) -> None:
    url = nats_server.url(password="secret")
    with pytest.raises(InvalidInput, match="refuses the user, password") as caught:
        await open_store(url)
    assert "secret" not in str(caught.value)
    assert "secret" not in display_name(url)
    assert sqlite_path(url) is None


async def test_log_opened_for_reading_is_not_written_to(url: str) -> None:
    store = await open_store(url, read_only=True)
    with pytest.raises(StoreNotWritable, match="opened for reading only"):
        await store.append("job.a", 0, [a_fact("1")])
    await store.close()


# ---- commands


@pytest.mark.slow
def test_commands_take_a_log_in_nats(nats_server: NatsServer, tmp_path: Path) -> None:
    url = nats_server.url()

    def voda(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "from voda.cli import main; main()", *arguments],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "opensesame" not in done.stdout + done.stderr
        return done.stdout

    voda("log", "migrate", url)
    asyncio.run(fill(tmp_path / "log.db", 3))
    voda("log", "copy", str(tmp_path / "log.db"), url)
    assert "3 events in 2 streams and 0 snapshots are what was written" in voda("log", "verify", url)
    assert len(voda("events", url, "-o", "json").splitlines()) >= 3
