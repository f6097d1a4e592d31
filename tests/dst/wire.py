"""The way between a replica and what it needs: requests travel, are heeded, and are answered, or not.

Rule: a request that was sent is on its way whatever becomes of its sender: it is heeded though the sender was killed,
or has given up; what the sender is told is another matter.
"""

import asyncio
import contextvars
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from tests.dst.faults import Fault
from voda.domain.errors import TransientError

T = TypeVar("T")
_FAST_S: Final = 0.004
_SLOW_S: Final = 20.0
"""Longest time that a slow request travels."""
_CUT_S: Final = 8.0
"""Longest time until somebody who is cut off is told so."""


class Trouble:
    """The faults that are on, by kind."""

    def __init__(self) -> None:
        self.changing: Callable[[str], bool] = lambda what: False
        """Told what the replica is about to change, returns whether it was struck before it could."""
        self._on: dict[str, list[Fault]] = {}

    def begin(self, fault: Fault) -> None:
        """Let it begin."""
        self._on.setdefault(fault.kind, []).append(fault)

    def end(self, fault: Fault) -> None:
        """Let it end."""
        left = [other for other in self._on[fault.kind] if other is not fault]
        if left:
            self._on[fault.kind] = left
        else:
            del self._on[fault.kind]

    def share(self, kind: str) -> float:
        """Return the share of what is hit by a kind of faults now, 0 to 1."""
        return max((abs(fault.share) for fault in self._on.get(kind, ())), default=0.0)

    @property
    def is_any(self) -> bool:
        """Whether anything is wrong."""
        return bool(self._on)


class Wire:
    """One replica's way to one server.

    Args:
        loop: of the world.
        chance: draws how long things take, and what is hit.
        trouble: of the replica.
        prefix: of the kinds of faults that hit this way: store, lease or cluster.
        lost: makes the error that the sender is told where there is no answer.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        chance: Random,
        trouble: Trouble,
        prefix: str,
        lost: Callable[[str], TransientError],
    ) -> None:
        self.is_dead = False
        """Whether the sender is: what is sent then goes nowhere."""
        self._loop = loop
        self._chance = chance
        self._trouble = trouble
        self._kinds = {kind: f"{prefix}_{kind}" for kind in ("cut", "before", "after", "slow")}
        self._prefix = prefix
        self._lost = lost
        self._nobody = contextvars.Context()

    @property
    def is_cut(self) -> bool:
        """Whether nothing gets through."""
        return self.is_dead or self._trouble.share(self._kinds["cut"]) > 0

    async def ask(self, heed: Callable[[], T], *, is_change: bool = False, what: str = "") -> T:
        """Have a request heeded where it arrives, and return the answer.

        Args:
            heed: what the server does, at one instant.
            is_change: whether it changes something: then it may be refused before, or go unanswered after.
            what: is changed, for whoever lies in wait for it.
        """
        chance = self._chance
        if is_change and self._trouble.changing(what or self._prefix):
            # Sent when it goes on, if ever.
            await asyncio.sleep(0)
        future: asyncio.Future[T] = self._loop.create_future()
        there_s = _FAST_S * chance.random()
        if not self._trouble.is_any and not self.is_dead:
            self._loop.call_later(there_s, self._heed, future, heed, context=self._nobody)
            return await future
        if self._hits("cut"):
            # Longer than some wait for an answer, shorter than others do.
            self._later(_CUT_S * chance.random() ** 3, _fail, future, self._lost("it cannot be reached"))
        elif is_change and self._hits("before"):
            self._later(there_s, _fail, future, self._lost("it refused a connection"))
        else:
            slow = self._hits("slow")
            there_s += _SLOW_S * chance.random() ** 3 if slow else 0.0
            self._later(there_s, self._arrive, future, heed, is_change, slow)
        return await future

    def _arrive(self, future: "asyncio.Future[T]", heed: Callable[[], T], is_change: bool, slow: bool) -> None:
        """Heed what has arrived, even though the sender may be dead by now; the answer takes a way of its own."""
        if self._trouble.share(self._kinds["cut"]) > 0 and self._chance.random() < 0.5:
            self._later(_CUT_S * self._chance.random(), _fail, future, self._lost("the connection broke"))
            return
        answer: asyncio.Future[T] = self._loop.create_future()
        self._heed(answer, heed)
        lost = answer.exception() is None and is_change and self._hits("after")
        if lost or self.is_cut:
            self._later(_CUT_S * self._chance.random() ** 3, _fail, future, self._lost("there was no answer"))
        else:
            back_s = _SLOW_S * self._chance.random() ** 3 if slow else _FAST_S * self._chance.random()
            self._later(back_s, _hand_over, answer, future)

    def _hits(self, kind: str) -> bool:
        if kind == "cut" and self.is_dead:
            return True
        share = self._trouble.share(self._kinds[kind])
        return share > 0 and (kind == "cut" or self._chance.random() < share)

    def _later(self, span_s: float, act: Callable[..., object], *args: Any) -> None:
        self._loop.call_later(span_s, act, *args, context=self._nobody)

    @staticmethod
    def _heed(future: "asyncio.Future[T]", heed: Callable[[], T]) -> None:
        try:
            answer = heed()
        except Exception as error:  # handed to whoever asked
            _fail(future, error)
        else:
            if not future.done():
                future.set_result(answer)


def _hand_over(answer: "asyncio.Future[T]", future: "asyncio.Future[T]") -> None:
    error = answer.exception()
    if error is not None:
        _fail(future, error)
    elif not future.done():
        future.set_result(answer.result())


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        # So that nobody misses it where the sender is dead.
        future.exception()
