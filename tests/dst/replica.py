"""A replica: life after life of one process, by name.

Rule: a killed life runs no further, not even what it would do in the end; what it sent before is on its way all the
same. A process that ends by itself is started again, as any supervisor would.
"""

import asyncio
import contextvars
from collections.abc import Callable
from random import Random
from typing import Final

from tests.dst.loop import Owner, SeededLoop, within
from tests.dst.service import Service
from tests.dst.wire import Trouble
from voda.clock import SystemClock
from voda.domain.errors import TransientError

START_AT: Final = 1_800_000_000.0
"""Time of day at the beginning, seconds since the epoch."""
_AGAIN_S: Final = 3.0


class ReplicaClock(SystemClock):
    """The product's clock over a wall clock that is off and jumps, with ids that are drawn."""

    def __init__(self, loop: SeededLoop, chance: Random, wall: Callable[[], float]) -> None:
        super().__init__(wall=wall, steady=loop.time)
        self._chance = chance

    def new_id(self) -> str:
        """Return 128 drawn bits."""
        return f"{self._chance.getrandbits(128):032x}"


class Replica:
    """See the module.

    Args:
        name: r0, r1, ...
        loop: of the world.
        build: makes a life, given its name, the replica's trouble and its clock.
        chance: draws ids and how far the wall clock is off.
        note: writes into the trace.
        failed: is told that a life ended in a way that was not foreseen.
    """

    def __init__(  # noqa: PLR0913 - its ports
        self,
        name: str,
        loop: SeededLoop,
        *,
        build: Callable[[str, Trouble, ReplicaClock], Service],
        chance: Random,
        note: Callable[[str], None],
        failed: Callable[[str], None],
    ) -> None:
        self.name = name
        self.incarnation = 0
        self.trouble = Trouble()
        self.service: Service | None = None
        self.context = contextvars.Context()
        """Of the present life."""
        self.off_s = chance.uniform(-2.0, 2.0)
        """By which its wall clock is."""
        self._began_s = loop.time()
        self._loop = loop
        self._build = build
        self._chance = chance
        self._note = note
        self._failed = failed
        self._owner = Owner("")
        self._life: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_wanted = False
        self._starts = 0
        """Counts orders to start, so that a later stop makes an earlier one void."""

    # ---- what it is like

    @property
    def is_up(self) -> bool:
        """Whether there is a process."""
        return self._life is not None

    @property
    def is_frozen(self) -> bool:
        """Whether the process is stopped (SIGSTOP)."""
        return self._owner.is_frozen

    @property
    def is_serving(self) -> bool:
        """Whether a caller gets through to it."""
        return self.service is not None and self.service.door is not None

    @property
    def is_leading(self) -> bool:
        """Whether it believes to lead."""
        return self.service is not None and self.service.leadership.is_leading

    @property
    def epoch(self) -> int:
        """Epoch in which it believes to lead; 0 = it does not."""
        return self.service.leadership.epoch if self.service is not None else 0

    # ---- what becomes of it

    def start(self) -> None:
        """Begin a life, unless there is one; where that one is ending, once it has ended."""
        if self._life is not None:
            self._is_wanted = self._is_stopping
            return
        self._is_wanted = self._is_stopping = False
        self.incarnation += 1
        name = f"{self.name}.{self.incarnation}"
        self._owner = Owner(name)
        self.context = within(self._owner)
        self._note(f"{name} starts")
        life = self.context.run(self._begin, name)
        self._life = life
        life.add_done_callback(lambda task: self._end(task, name), context=contextvars.Context())

    def kill(self) -> None:
        """End the life at once, wherever it is (SIGKILL)."""
        if self._life is not None:
            self._note(f"{self._owner.name} killed")
            self._loop.kill(self._owner)
            self._bury()

    def stop(self) -> None:
        """Have the life end in order (SIGTERM)."""
        if self._life is not None and not self._owner.is_frozen:
            self._note(f"{self._owner.name} stops")
            self._is_stopping = True
            self._life.cancel()

    def freeze(self) -> None:
        """Let nothing of it run (SIGSTOP)."""
        if self._life is not None:
            self._note(f"{self._owner.name} frozen")
            self._loop.freeze(self._owner)

    def strike_midway(self, chance: Random, strike: Callable[[], None]) -> None:
        """Have something done just before, or a few steps after, a change that the present life is about to make."""
        owner, kind = self._owner, chance.choice(("decisions.", "decisions.", "", "", "cluster", "lease"))
        changes, fuse = chance.randint(1, 2 if kind else 5), chance.choice((-1, chance.randint(0, 30)))

        def blown() -> None:
            if owner is self._owner and not owner.is_dead:
                strike()

        def changing(what: str) -> bool:
            nonlocal changes
            if not what.startswith(kind):
                return False
            changes -= 1
            if changes:
                return False
            self.trouble.changing = lambda what: False
            owner.fuse, owner.blown = fuse, blown
            if fuse < 0:
                blown()
            return fuse < 0

        self.trouble.changing = changing

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        if self._owner.is_frozen:
            self._note(f"{self._owner.name} goes on")
            self._loop.thaw(self._owner)

    def start_later(self, span_s: float) -> None:
        """Begin a life in a while, unless something else is decided by then."""
        self._starts += 1
        self._loop.call_later(span_s, self._start_if, self._starts, context=contextvars.Context())

    def stir(self) -> None:
        """Have its watches notice that a connection broke, or is there again."""
        if self.service is not None:
            self.service.lease.stir()
            for cluster in self.service.clusters.values():
                cluster.stir()

    # ---- inside

    def _begin(self, name: str) -> asyncio.Task[None]:
        clock = ReplicaClock(self._loop, self._chance, self._wall)
        self.service = self._build(name, self.trouble, clock)
        task: asyncio.Task[None] = self._loop.create_task(self.service.run(), name=name)
        return task

    def _wall(self) -> float:
        return START_AT + self._loop.time() - self._began_s + self.off_s

    def _start_if(self, order: int) -> None:
        if order == self._starts:
            self.start()

    def _end(self, task: asyncio.Task[None], name: str) -> None:
        """Take note that a life ended by itself, or as it was told to."""
        if task is not self._life:
            return
        error = None if task.cancelled() else task.exception()
        self._note(f"{name} ended {'' if error is None else repr(error)}".strip())
        self._loop.kill(self._owner)
        self._bury()
        if error is not None and not isinstance(error, TransientError):
            self._failed(f"unforeseen: replica {name} ended by itself: {_told(error)}")
        if error is not None or self._is_wanted:
            self.start_later(_AGAIN_S)

    def _bury(self) -> None:
        assert self.service is not None, "a life has one"
        self.service.sever()
        self.service, self._life = None, None
        self._owner.is_frozen = False


def _told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_told(one) for one in error.exceptions)
    return repr(error)
