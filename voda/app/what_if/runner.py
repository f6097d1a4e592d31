"""Has what-ifs answered, one after the other, each by a process of its own.

Rules: what waits, runs and is kept is bounded, for all and for each user. A process ends when its question is dropped.
"""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from voda.api.what_ifs import AskedWhatIf, WhatIfQuestion
from voda.app.side_process import side_process
from voda.app.what_if.process import Asked, Told
from voda.auth.callers import Caller
from voda.clock import Clock
from voda.domain.errors import NotFound, TooManyRequests

_MOST_OPEN: Final = 8
"""Questions that wait or run."""
_MOST_OPEN_OF_USER: Final = 2
_MOST_KEPT: Final = 32
"""Answers; each has some 30 kB."""
_LONGEST_S: Final = 1_800.0
"""Of one question."""
_PROCESS: Final = "voda.app.what_if.process"
_OPEN: Final = ("waiting", "running")


class WhatIfRunner:
    """The what-ifs of a service whose log is `log`."""

    def __init__(self, log: str, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._known: dict[str, AskedWhatIf] = {}
        """By id, in the order in which they were asked."""
        self._asked = asyncio.Event()
        self._running: tuple[str, asyncio.Task[None]] | None = None

    def ask(self, question: WhatIfQuestion, caller: Caller) -> AskedWhatIf:
        """Have a question answered; raises TooManyRequests where the caller, or all, wait for too many."""
        open_ones = [one for one in self._known.values() if one.state in _OPEN]
        same = [one for one in open_ones if (one.user, one.question) == (caller.user, question)]
        if same:
            return same[0]
        if len([one for one in open_ones if one.user == caller.user]) >= _MOST_OPEN_OF_USER:
            raise TooManyRequests(
                f"{_MOST_OPEN_OF_USER} what-ifs of {caller.user} are under way, as many as one user may have: drop one,"
                " or wait"
            )
        if len(open_ones) >= _MOST_OPEN:
            raise TooManyRequests(f"{_MOST_OPEN} what-ifs are under way, as many as this server takes: wait")
        made = AskedWhatIf(what_if_id=self._clock.new_id(), user=caller.user, question=question)
        self._known[made.what_if_id] = made
        for old in [one for one in self._known.values() if one.state not in _OPEN][:-_MOST_KEPT]:
            del self._known[old.what_if_id]
        self._asked.set()
        return made

    def get(self, what_if_id: str, caller: Caller) -> AskedWhatIf:
        """Return a question of the caller's as it is now; raises NotFound."""
        found = self._known.get(what_if_id)
        if found is None or (found.user != caller.user and caller.role != "admin"):
            raise NotFound(
                f"there is no what-if {what_if_id[:80]!r}: ask it again; answers are kept for a while, by the"
                " replica that was asked"
            )
        return found

    def drop(self, what_if_id: str, caller: Caller) -> None:
        """End and forget a question of the caller's; raises NotFound."""
        del self._known[self.get(what_if_id, caller).what_if_id]
        if self._running is not None and self._running[0] == what_if_id:
            self._running[1].cancel()

    async def run(self) -> None:
        """Answer for ever."""
        while True:
            self._asked.clear()
            while (waiting := self._next()) is not None:
                task = asyncio.ensure_future(self._answer(waiting))
                self._running = waiting.what_if_id, task
                try:
                    await asyncio.wait({task})
                finally:
                    self._running = None
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
            await self._asked.wait()

    def _next(self) -> AskedWhatIf | None:
        return next((one for one in self._known.values() if one.state == "waiting"), None)

    async def _answer(self, waiting: AskedWhatIf) -> None:
        what_if_id = waiting.what_if_id
        self._note(what_if_id, Told(step="starting"))
        try:
            async with asyncio.timeout(_LONGEST_S):
                await self._follow(what_if_id, Asked(log=self._log, question=waiting.question))
        except TimeoutError:
            self._note(what_if_id, Told(error=f"it takes longer than {_LONGEST_S / 60:.0f} minutes: begin later"))
        except EOFError:
            self._note(what_if_id, Told(error="its process ended before its answer: it takes too much, begin later"))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self._note(what_if_id, Told(error=f"its process failed: {error}"))

    async def _follow(self, what_if_id: str, asked: Asked) -> None:
        async with side_process(_PROCESS) as process:
            # Not as an argument, which everybody on the machine can read: a URL may hold a password.
            await process.send(msgspec.json.encode(asked))
            while (known := self._known.get(what_if_id)) is not None and known.state == "running":
                self._note(what_if_id, msgspec.json.decode(await process.receive(), type=Told))

    def _note(self, what_if_id: str, told: Told) -> None:
        if (known := self._known.get(what_if_id)) is None:
            return
        if told.error:
            known = replace(known, state="failed", error=told.error)
        elif told.answer is not None:
            known = replace(known, state="done", progress=1.0, step="", answer=told.answer)
        else:
            known = replace(known, state="running", progress=told.progress, step=told.step)
        self._known[what_if_id] = known
