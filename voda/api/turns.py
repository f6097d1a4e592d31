"""Turns at questions that keep a core busy or read a long piece of the log: two are worked on at a time.

Rule: users take turns, whatever they ask, and one question of a user is worked on at a time: so one waits for as many
questions as there are other users who ask, however many these have sent.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

_AT_ONCE: Final = 2


class Turns:
    """Hands out the turns of one server."""

    def __init__(self) -> None:
        self._free = _AT_ONCE
        self._busy = set[str]()
        """Users of whom a question is worked on."""
        self._waiting = dict[str, list[asyncio.Future[None]]]()
        """The questions of each user in their order; who had a turn last is last. Some may be canceled."""

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait for the user's turn, and have it for the length of the block."""
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, []).append(due)
        self._hand_out()
        try:
            await due
            yield
        finally:
            # A turn may have been handed out to who is canceled at this moment.
            if not due.cancelled():
                self._free += 1
                self._busy.remove(user)
                if questions := self._waiting.pop(user, None):
                    self._waiting[user] = questions
                self._hand_out()

    def _hand_out(self) -> None:
        for user in [user for user in self._waiting if user not in self._busy]:
            if not self._free:
                return
            questions = [each for each in self._waiting.pop(user) if not each.cancelled()]
            if not questions:
                continue
            due = questions.pop(0)
            if questions:
                self._waiting[user] = questions
            self._free -= 1
            self._busy.add(user)
            due.set_result(None)


TURNS: Final = web.AppKey("TURNS", Turns)
