"""An event loop on virtual time that draws what runs next, and whose tasks can be killed or frozen by their owner.

Rules: where nothing is ready, time jumps to the next timer; no thread, no socket, no real time; nothing of a dead
owner runs again, not even what it would do in the end (its connections are dead as well).
"""

import asyncio
import contextvars
import heapq
import threading
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
START_S: Final = 1_000.0
"""Of the loop's steady clock."""
_STEP_S: Final = 1e-6
"""What each step takes: who asks for the time again and again sees it go on."""
_MOST_AT_ONCE: Final = 20_000
"""Steps within one second after which somebody is believed to turn in circles."""
_MANY_CANCELED: Final = 500


class Owner:
    """Whose tasks they are: one life of one process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.fuse = -1
        """Steps that it makes until `blown` is called; -1 = it has none."""
        self.blown: Callable[[], object] = lambda: None
        self.parked: list[asyncio.Handle] = []
        """What is to run once it is not frozen any more; of a dead one, what never will."""


OWNER: Final[contextvars.ContextVar[Owner | None]] = contextvars.ContextVar("OWNER", default=None)


class SeededTask(asyncio.Task[T]):
    """A task that is hashed by its number, so that sets of tasks have the same order in every process."""

    def __init__(self, number: int, *args: Any, **kwargs: Any) -> None:
        self.number = number
        context = kwargs.get("context")
        self.owner = OWNER.get() if context is None else context.get(OWNER)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self.number


class SeededLoop(asyncio.BaseEventLoop):
    """See the module.

    Args:
        chance: draws the order in which what is ready runs.
    """

    _ready: list[asyncio.Handle]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, chance: Random) -> None:
        super().__init__()
        # Drawn from at any place, which a deque is slow to give.
        self._ready = []
        self._draw = chance.random
        self._now = START_S
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._set = 0
        self._tasks = 0
        self.steps = 0
        self.graves: list[SeededTask[Any]] = []
        """Tasks of the dead: kept, so that no finalizer runs what they would have done in the end."""
        self.circled: Callable[[], object] = lambda: None
        """Called where an unbelievable number of steps was made within a second."""
        self._look_at = _MOST_AT_ONCE
        self._looked_s = START_S

    def time(self) -> float:
        """Return the virtual seconds."""
        return self._now

    # ---- owners

    def kill(self, owner: Owner) -> None:
        """Let nothing of the owner run any more."""
        owner.is_dead = True
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SeededTask) and task.owner is owner]
        self.graves += sorted(tasks, key=lambda task: task.number)

    def freeze(self, owner: Owner) -> None:
        """Let nothing of the owner run until it is thawed."""
        owner.is_frozen = True

    def thaw(self, owner: Owner) -> None:
        """Let the owner go on."""
        owner.is_frozen = False
        self._ready += owner.parked
        owner.parked.clear()

    def bury(self, *, most_steps: int = 100_000) -> None:
        """End what is left of everybody, dead or alive; the loop must not be running, nor anything be checked then."""
        self.set_exception_handler(lambda loop, context: None)
        self.run_until_complete(self._end_all(self.steps + most_steps))
        self.run_until_complete(self.shutdown_asyncgens())
        self.graves.clear()

    async def _end_all(self, until: int) -> None:
        me = asyncio.current_task()
        # Asked for anew each time: meanwhile others may be begun, and killed.
        while (tasks := asyncio.all_tasks(self) - {me}) and self.steps < until:
            for task in sorted(tasks, key=hash):
                if isinstance(task, SeededTask) and task.owner is not None:
                    task.owner.is_dead = task.owner.is_frozen = False
                    self.thaw(task.owner)
                task.cancel()
            await asyncio.sleep(1.0)

    # ---- what asyncio asks of a loop

    def create_task(self, coro: Any, *, name: Any = None, context: contextvars.Context | None = None) -> Any:
        """See asyncio.AbstractEventLoop."""
        self._tasks += 1
        return SeededTask(self._tasks, coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call it here and now; the answer comes a moment later."""
        future: asyncio.Future[T] = self.create_future()
        try:
            answer = func(*args)
        except Exception as error:  # handed to whoever waits
            self.call_soon(_fail, future, error)
        else:
            self.call_soon(_fulfil, future, answer)
        return future

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Call it soon, as finalizers of generators ask for; there are no threads."""
        if threading.get_ident() != threading.main_thread().ident:
            raise RuntimeError("a thread wants something of a loop that has none")
        return self.call_soon(callback, *args, context=context)

    def _process_events(self, _events: Any) -> None:
        raise RuntimeError("there is no outside world")

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See asyncio.AbstractEventLoop; without the checks of the base class, because most of a run is spent here."""
        # An empty context is false.
        handle = _Soon(callback, args, self, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio.AbstractEventLoop."""
        timer = _Timer(when, callback, args, self, contextvars.copy_context() if context is None else context)
        self._set += 1
        # Tuples are compared much faster than timers; and of two timers of one instant, the first set is the first.
        heapq.heappush(self._timers, (when, self._set, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio.AbstractEventLoop."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run what is ready, one by one in the drawn order, until the loop is to stop."""
        ready, timers, draw = self._ready, self._timers, self._draw
        while not self._stopping:
            if timers and timers[0][0] <= self._now:
                self._wake_timers()
            last = len(ready) - 1
            if last < 0:
                self._jump()
                continue
            if last:
                chosen = int(draw() * (last + 1))
                ready[chosen], ready[last] = ready[last], ready[chosen]
            handle = ready.pop()
            owner: Owner | None = handle._context.get(OWNER)  # type: ignore[attr-defined]
            if handle._cancelled or (owner is not None and not _may_run(owner, handle)):
                continue
            self.steps += 1
            if self.steps >= self._look_at:
                self._look_for_circles()
            self._now += _STEP_S
            try:
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # as asyncio does: told to whoever looks after the loop
                self.call_exception_handler({"message": f"in {handle!r}", "exception": error, "handle": handle})

    def _wake_timers(self) -> None:
        timers, now = self._timers, self._now
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            else:
                self._ready.append(timer)

    def _jump(self) -> None:
        timers = self._timers
        if self._timer_cancelled_count > _MANY_CANCELED:
            # In place: the list is known elsewhere.
            timers[:] = [entry for entry in timers if not entry[2]._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        if not timers:
            raise RuntimeError("all tasks wait for each other, and no timer is set")
        self._now = max(self._now, timers[0][0])

    def _look_for_circles(self) -> None:
        if self._now - self._looked_s < 1.0:
            self.circled()
        self._look_at, self._looked_s = self.steps + _MOST_AT_ONCE, self._now


class _Soon(asyncio.Handle):
    """A handle that is made without a look at whether the loop is debugged."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: asyncio.AbstractEventLoop, context: contextvars.Context) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None


class _Timer(asyncio.TimerHandle):
    """The same, for a later instant."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Any, args: Any, loop: asyncio.AbstractEventLoop, context: contextvars.Context
    ) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, True


def _may_run(owner: Owner, handle: asyncio.Handle) -> bool:
    """Return whether the owner may make this step; if not, it is kept for when it may."""
    if owner.fuse >= 0:
        owner.fuse -= 1
        if owner.fuse < 0:
            owner.blown()
    if owner.is_dead or owner.is_frozen:
        owner.parked.append(handle)
        return False
    return True


def _fulfil(future: asyncio.Future[T], answer: T) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def within(owner: Owner) -> contextvars.Context:
    """Return a context in which everything belongs to the owner."""
    context = contextvars.copy_context()
    context.run(OWNER.set, owner)
    return context


def now_s() -> float:
    """Return the running loop's steady seconds."""
    return asyncio.get_running_loop().time()


def run(loop: SeededLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop to its end."""
    return loop.run_until_complete(work)
