"""The present moment for all who look: made once for each change, several times a second at most.

Rule: nobody waits for a slow viewer: one who has missed changes gets the whole moment again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from voda.api.presenters.moments import Forecasts, Moment, Moments, changes_view, moment_view
from voda.application.journal import JournalView
from voda.clock import Clock
from voda.events.envelope import Event

_APART_S: Final = 0.25
"""Between two frames."""
_MOST_WAITING: Final = 64
"""Frames that wait for one viewer."""
_encode: Final = msgspec.json.Encoder().encode


class _Viewer:
    """The frames that wait for one viewer; None where it has missed some."""

    def __init__(self) -> None:
        self.frames: deque[bytes] | None = None
        self.woken = asyncio.Event()


class MomentHub:
    """Follows a read model while somebody looks."""

    def __init__(self, view: JournalView, clock: Clock, job_gpus: Callable[[str], Mapping[int, str]]) -> None:
        self._view = view
        self._clock = clock
        self._moments = Moments(job_gpus)
        self._present: Moment | None = None
        self._latest_whole: tuple[Moment, bytes] | None = None
        """The frame that was made last, and of which moment."""
        self._viewers: dict[_Viewer, None] = {}
        self._grown = asyncio.Event()
        self._frames: asyncio.Task[None] | None = None
        view.subscribe(self._see)

    def state(self) -> bytes:
        """Return the present moment as JSON."""
        moment = self._renewed()
        return _encode(moment_view(moment, moment.position))

    async def follow(self, write: Callable[[bytes], Awaitable[None]], heartbeat_s: float) -> None:
        """Write the present moment as a frame, and one for each change, for ever."""
        viewer = _Viewer()
        self._viewers[viewer] = None
        try:
            while True:
                if viewer.frames is None:
                    # Nothing is awaited between the two. It is large, so that nobody holds it once it is written.
                    viewer.frames = deque()
                    await write(self._whole())
                self._run()
                while viewer.frames:
                    await write(viewer.frames.popleft())
                if viewer.frames is not None:
                    viewer.woken.clear()
                    try:
                        async with asyncio.timeout(heartbeat_s):
                            await viewer.woken.wait()
                    except TimeoutError:
                        await write(b": nothing new\n\n")
        finally:
            del self._viewers[viewer]

    def _see(self, _event: Event) -> None:
        self._grown.set()

    def _run(self) -> None:
        """Have frames made while there are viewers."""
        if self._frames is None or self._frames.done():
            self._frames = asyncio.create_task(self._make_frames())

    async def _make_frames(self) -> None:
        while self._viewers:
            self._renewed()
            self._grown.clear()
            try:
                # Forecasts come without an event.
                async with asyncio.timeout(1.0):
                    await self._grown.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(_APART_S)

    def _renewed(self) -> Moment:
        """Make the present moment anew, and hand the difference to all viewers."""
        view, before = self._view, self._present
        forecasts = Forecasts(view.forecasts, view.forecast_at)
        after = self._present = self._moments.moment(view.cluster, self._clock.now(), forecasts)
        if before is not None and (before.position, before.jobs, before.nodes) != (
            after.position,
            after.jobs,
            after.nodes,
        ):
            self._hand_out(_frame("changes", after.position, changes_view(before, after, after.position)))
        return after

    def _hand_out(self, frame: bytes) -> None:
        for viewer in self._viewers:
            if viewer.frames is not None:
                viewer.frames.append(frame)
                if len(viewer.frames) > _MOST_WAITING:
                    viewer.frames = None
            viewer.woken.set()

    def _whole(self) -> bytes:
        """Return the present moment as a frame, the same for all who come within a moment of each other."""
        if (latest := self._latest_whole) is not None and latest[0] is self._present and self._is_fresh(latest[0]):
            return latest[1]
        moment = self._renewed()
        frame = _frame("state", moment.position, moment_view(moment, moment.position))
        self._latest_whole = moment, frame
        return frame

    def _is_fresh(self, moment: Moment) -> bool:
        return moment.position == self._view.position and 0 <= self._clock.now() - moment.at < _APART_S


def _frame(event: str, position: int, data: msgspec.Struct) -> bytes:
    return b"event: %b\nid: %d\ndata: %b\n\n" % (event.encode(), position, _encode(data))
