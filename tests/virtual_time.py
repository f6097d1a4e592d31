"""An event loop on virtual time: where nothing is ready, the clock jumps to the next timer.

Rule: for what only waits for timers and for other tasks; who waits for the outside world would see time fly.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
START_S = 1_000.0
"""Of the loop's steady clock."""


class _Jumping(selectors.SelectSelector):
    """Does not wait: moves the clock."""

    now_s = START_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "all tasks wait for each other, and no timer is set"
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual seconds."""
        return self._jumping.now_s


def virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def now_s() -> float:
    """Return the running loop's steady seconds."""
    return asyncio.get_running_loop().time()
