"""The present moment for all who look, without a socket."""

import asyncio
import sys

from tests.builders import a_node
from voda.api.streams.moment_hub import MomentHub
from voda.application.read_model import ReadModel
from voda.clock import VirtualClock
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import NodeJoined
from voda.log.memory import MemoryStore

VIEWERS = 50


async def test_viewers_when_many_come_at_once_then_share_one_frame_and_hold_it_no_longer_than_they_write() -> None:
    store, written = MemoryStore(), list[bytes]()
    joined = NodeJoined(node=a_node("n1", gpus=8))
    await store.append(joined.stream, ANY_VERSION, [Fact(data=joined, event_id="1", recorded_at=1.0)])
    view = ReadModel(store)
    await view.open()
    hub, have_all = MomentHub(view, VirtualClock(2.0), lambda _node: {}), asyncio.Event()

    async def write(frame: bytes) -> None:
        written.append(frame)
        if len(written) == VIEWERS:
            have_all.set()

    watching = [asyncio.create_task(hub.follow(write, 60.0)) for _ in range(VIEWERS)]
    await have_all.wait()
    await asyncio.sleep(0)
    frame = written.pop()
    assert frame.startswith(b"event: state\nid: 1\n")
    assert all(other is frame for other in written)
    written.clear()
    # The hub's, the one here, and that of the call.
    assert sys.getrefcount(frame) <= 3
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
