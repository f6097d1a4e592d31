"""Appends to NATS JetStream, against raw publishing of the same bytes through nats-py.

Rule: one server with `sync_interval: always`; the raw loop publishes the bodies of the same events in the same batches,
a message each, to a stream of the same settings, as many at a time as there are writers here. In turns, so that a noisy
machine troubles all alike; ratios are medians over the turns. What our store makes of the batches, which it puts
together, is published as well, message by message: that ratio says what our store costs beside its messages.
"""

import asyncio
from collections.abc import Sequence
from statistics import median
from time import perf_counter

import nats

from benchmarks.log.facts import some_facts
from benchmarks.log.options import Options
from benchmarks.table import Row
from tests.nats import NatsServer, serving
from voda.events.envelope import ANY_VERSION, Fact
from voda.log.factory import migrate_log, open_store

TITLE = "Append to JetStream (file storage, sync_interval: always), pipelined, batches of 100"
_EVENTS = 100_000
"""Of one turn."""
_BATCH = 100
_WRITERS = 32
_TURNS = 5
_TIMEOUT_S = 30.0


async def run(options: Options) -> Sequence[Row]:
    """Return the ratio to raw publishing, and events/s."""
    facts = some_facts(options.scaled(_EVENTS, _BATCH * _WRITERS), jobs=_WRITERS)
    ratios, own_ratios, rates = [], [], []
    with serving() as server:
        for turn in range(options.scaled(_TURNS)):
            our_s = await _ours(url := server.url(f"ours{turn}"), facts)
            batches, messages = await _batches(url), await _messages(server, f"ours{turn}")
            raw_s = await _raw(server, f"raw{turn}", f"ours{turn}", batches)
            own_s = await _raw(server, f"own{turn}", f"ours{turn}", messages)
            ratios.append(raw_s / our_s)
            own_ratios.append(own_s / our_s)
            rates.append(len(facts) / our_s)
    return [
        Row(
            what="append: ratio to raw publishing",
            figure=median(ratios),
            unit="x",
            goal=0.5,
            better="higher",
            yardstick=f"nats-py, {_told(batches)}",
            ratio=median(ratios),
        ),
        Row(
            what=f"append, {_WRITERS} writers",
            figure=median(rates),
            unit="events/s",
            better="higher",
            yardstick=f"nats-py, {_told(messages)}, as our store has put them together",
            ratio=median(own_ratios),
        ),
    ]


def _told(messages: Sequence[bytes]) -> str:
    return f"{len(messages):,} messages of {sum(map(len, messages)) / len(messages):,.0f} bytes"


async def _ours(url: str, facts: Sequence[Fact]) -> float:
    await migrate_log(url)
    store = await open_store(url)
    batches = [facts[first : first + _BATCH] for first in range(0, len(facts), _BATCH)]

    async def write(writer: int) -> None:
        for batch in batches[writer::_WRITERS]:
            await store.append(f"job.{writer}", ANY_VERSION, batch)

    begun = perf_counter()
    async with asyncio.TaskGroup() as group:
        for writer in range(_WRITERS):
            group.create_task(write(writer))
    took_s = perf_counter() - begun
    await store.close()
    return took_s


async def _batches(url: str) -> Sequence[bytes]:
    """Return the bodies of the log's events, those of a batch together."""
    store = await open_store(url)
    batches: list[bytes] = []
    while page := await store.read_sealed(len(batches) * _BATCH, _BATCH):
        batches.append(b"".join(sealed.body for sealed in page))
    await store.close()
    return batches


async def _messages(server: NatsServer, stream: str) -> Sequence[bytes]:
    """Return what our store left in its stream."""
    connection = await nats.connect(server.url())
    jetstream = connection.jetstream()
    state = (await jetstream.stream_info(stream)).state
    messages = [await jetstream.get_msg(stream, sequence) for sequence in range(1, state.last_seq + 1)]
    await connection.close()
    return [message.data or b"" for message in messages]


async def _raw(server: NatsServer, name: str, like: str, messages: Sequence[bytes]) -> float:
    connection = await nats.connect(server.url())
    jetstream = connection.jetstream()
    config = (await jetstream.stream_info(like)).config
    config.name, config.subjects = name, [f"{name}.>"]
    await jetstream.add_stream(config)

    async def publish(writer: int) -> None:
        for body in messages[writer::_WRITERS]:
            await jetstream.publish(f"{name}.x", body, timeout=_TIMEOUT_S)

    begun = perf_counter()
    async with asyncio.TaskGroup() as group:
        for writer in range(_WRITERS):
            group.create_task(publish(writer))
    took_s = perf_counter() - begun
    await connection.close()
    return took_s
