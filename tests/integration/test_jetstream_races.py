"""A log in NATS JetStream, where something happens between two steps of something else."""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests import jetstream_logs
from tests.builders import a_fact, a_snapshot
from tests.jetstream_logs import SEGMENT, ids, opened
from voda.domain.errors import LogDamaged, StoreNotWritable, StoreUnavailable
from voda.events.envelope import ANY_VERSION, Head
from voda.log.archive.verify import verify_log
from voda.log.jetstream import state as state_module
from voda.log.jetstream.state import LogState
from voda.log.jetstream.store import JetStreamStore
from voda.log.jetstream.transport import stream as stream_module
from voda.log.jetstream.transport.stream import MessageStream
from voda.log.store import Base

pytestmark = pytest.mark.nats
url, store = jetstream_logs.url, jetstream_logs.store


async def test_id_that_comes_in_while_ids_are_looked_up_is_known(
    url: str, store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "SEGMENT_EVENTS", SEGMENT)
    for number in range(SEGMENT):
        await store.append("job.a", number, [a_fact(str(number))])
    async with opened(url) as other:
        look_up = other._reader.ids

        async def while_another_appends(state: LogState) -> Any:
            monkeypatch.setattr(other._reader, "ids", look_up)
            found = await look_up(state)
            await store.append("job.b", ANY_VERSION, [a_fact("same")])
            await other.position()
            return found

        monkeypatch.setattr(other._reader, "ids", while_another_appends)
        assert await other.append("job.b", ANY_VERSION, [a_fact("same")]) == SEGMENT + 1
    assert (await ids(store)).count("same") == 1


async def test_group_answered_while_the_log_is_folded_anew_counts_once(
    store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append("job.a", 0, [a_fact("1"), a_fact("2")])
    publish = store._log.stream.publish

    async def and_begin_anew(*arguments: Any, **options: Any) -> int:
        sequence = await publish(*arguments, **options)
        await store._log.begin_anew()
        return sequence

    monkeypatch.setattr(store._log.stream, "publish", and_begin_anew)
    assert await store.append("job.a", 2, [a_fact("3")]) == 3
    monkeypatch.setattr(store._log.stream, "publish", publish)
    assert await store.append("job.a", 3, [a_fact("4")]) == 4
    assert await ids(store) == ["1", "2", "3", "4"]
    assert (await verify_log(store)).problem == ""


async def test_append_that_may_still_arrive_is_not_said_to_be_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as store:
        await store.append("job.a", 0, [a_fact("1")])
        # How long it is tried, once nobody answers.
        store._log.connection.timeout_s = 1.0
        fates: Iterator[Exception] = iter([StoreUnavailable("no answer")])

        async def fails(*_: Any, **__: Any) -> int:
            raise next(fates, StoreNotWritable("no room"))

        monkeypatch.setattr(store._log.stream, "publish", fails)
        with pytest.raises(StoreUnavailable, match="it is not known whether the events were recorded"):
            await store.append("job.a", 1, [a_fact("2")])
        with pytest.raises(StoreNotWritable, match="no room"):
            await store.append("job.a", 1, [a_fact("3")])


async def test_page_whose_first_message_was_lost_is_asked_for_again(
    store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await store.append("job.a", number, [a_fact(str(number))])
    batch = store._log.stream._batch
    lost: list[object] = []

    async def less_the_first(queue: "asyncio.Queue[Any]") -> Any:
        if not lost:
            lost.append(await queue.get())
        return await batch(queue)

    monkeypatch.setattr(store._log.stream, "_batch", less_the_first)
    assert await ids(store) == ["0", "1", "2"]
    assert lost


def answer_too_early(monkeypatch: pytest.MonkeyPatch, stream: MessageStream, *, times: int) -> None:
    """Have the servers not know the stream's last messages for so many answers."""
    page, api, left = stream.page, stream.api, iter(range(times))

    async def less(sequence: int, **limits: Any) -> list[Any]:
        return [] if next(left, None) is not None else await page(sequence, **limits)

    async def early(what: str, body: object = None) -> dict[str, Any]:
        answer = await api(what, body)
        if next(left, None) is not None:
            answer["state"]["last_seq"] = 1
        return answer

    monkeypatch.setattr(stream, "page", less)
    monkeypatch.setattr(stream, "api", early)


async def test_end_that_is_told_too_early_is_neither_the_end_nor_a_loss_until_it_is_told_again(
    url: str, store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_SURE_S", 0.01)
    for event_id in ("1", "2", "3"):
        await store.append("job.a", ANY_VERSION, [a_fact(event_id)])
    async with opened(url) as reader:
        for each in (store, reader):
            assert len(await each.read(0, 3)) == 3
            answer_too_early(monkeypatch, each._log.stream, times=4)
            assert await ids(each) == ["1", "2", "3"]
            answer_too_early(monkeypatch, each._log.stream, times=10**9)
            each._log.connection.timeout_s = 1.0
            with pytest.raises(LogDamaged, match=r"position 1: .*message 3 of the stream .* is gone"):
                await each.read(0, 2)


async def test_append_that_always_loses_the_race_is_given_up_in_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as store:
        timeout_s, store._log.connection.timeout_s = store._log.connection.timeout_s, 1.0

        async def loses(*_: Any) -> bool:
            await asyncio.sleep(0)
            return False

        write = store._writer._write
        monkeypatch.setattr(store._writer, "_write", loses)
        async with asyncio.timeout(60):
            with pytest.raises(StoreUnavailable, match="other writers were faster again and again"):
                await store.append("job.a", 0, [a_fact("1")])
        monkeypatch.setattr(store._writer, "_write", write)
        store._log.connection.timeout_s = timeout_s
        assert await store.append("job.a", 0, [a_fact("1")]) == 1


@pytest.mark.parametrize("how", ["lagging", "away", "another order"])
async def test_record_when_the_nearest_server_has_not_all_of_it_in_order_is_read_from_the_leader(
    store: JetStreamStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    marks, state = store._log.marks, os.urandom(600_000)
    await store.append("job.a", 0, [a_fact("1")])
    await store.snapshots.save(a_snapshot("live-1", 1, state, heads=await store.heads()))
    page = marks.stream.page

    async def less(sequence: int, **limits: Any) -> list[Any]:
        if how == "away":
            raise StoreUnavailable("no answer")
        return (await page(sequence, **limits))[:-1]

    if how == "another order":
        # As if another process had written the same once more, and ended in between.
        (subject,) = [each for each in await _subjects(marks.stream) if "-pieces." in each and each.endswith(".0")]
        piece = await marks.stream.last_of(subject)
        assert piece is not None
        await marks.stream.publish(subject, piece.data)
    else:
        monkeypatch.setattr(marks.stream, "page", less)
    latest = await store.snapshots.latest("live-1")
    assert latest is not None
    assert latest.state == state


async def _subjects(stream: MessageStream) -> list[str]:
    return list((await stream.api("INFO", {"subjects_filter": ">"}))["state"]["subjects"])


# ---- archive


async def test_archiving_that_was_broken_off_is_finished_by_the_same_again(
    store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await store.append("job.a", number, [a_fact(str(number))])
    base = Base(position=3, heads={"job.a": Head(3, (await store.read_sealed(2, 1))[0].hash, 0)}, folder="/archive")
    api = store._log.stream.api

    async def no_purge(what: str, body: object = None) -> Any:
        if what == "PURGE":
            raise StoreUnavailable("no answer")
        return await api(what, body)

    monkeypatch.setattr(store._log.stream, "api", no_purge)
    with pytest.raises(StoreUnavailable):
        await store.forget(base)
    monkeypatch.setattr(store._log.stream, "api", api)
    assert (await store._log.stream.state())["first_seq"] == 1
    await store.forget(base)
    assert (await store._log.stream.state())["first_seq"] == 4
    assert [event.event_id for event in await store.read(3, 9)] == ["3", "4"]
    await store.refuse_cut()


async def test_archiving_nothing_deletes_nothing(store: JetStreamStore) -> None:
    await store.append("job.a", 0, [a_fact("1")])
    await store.forget(Base())
    assert await ids(store) == ["1"]


async def test_process_that_comes_back_after_the_rest_was_archived_goes_on(url: str, store: JetStreamStore) -> None:
    await store.append("job.a", 0, [a_fact("1")])
    async with opened(url) as away:
        assert await away.position() == 1
        for number in range(1, 5):
            await store.append("job.a", number, [a_fact(str(number + 1))])
        head = Head(3, (await store.read_sealed(2, 1))[0].hash, 0)
        await store.forget(Base(position=3, heads={"job.a": head}, folder="/archive"))
        assert await away.ends() == await store.ends()
        assert await away.append("job.a", 5, [a_fact("6")]) == 6


async def test_process_that_only_reads_keeps_one_checkpoint(
    url: str, store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "SEGMENT_EVENTS", 2)
    async with opened(url) as reader:
        assert await reader.position() == 0
        for number in range(10):
            await store.append("job.a", number, [a_fact(str(number))])
        assert await reader.position() == 10
        assert [closed.last for closed in reader._log.closed] == [2, 4, 6, 8, 10]
        assert LogState.load("checkpoint", reader._log.checkpoint).position == 10
        assert await reader.append("job.a", ANY_VERSION, [a_fact("0")]) == 1
