"""Who is next where many ask what takes long."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from voda.api.turns import Turns


class Questions:
    """Questions of users that take a step of the loop each, in the order in which they were worked on."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.worked_on = list[str]()
        self.most_at_once = 0
        self._now = list[str]()

    async def ask(self, user: str) -> None:
        async with self.turns.turn(user):
            self.worked_on.append(user)
            self._now.append(user)
            assert self._now.count(user) == 1
            self.most_at_once = max(self.most_at_once, len(self._now))
            await asyncio.sleep(0)
            self._now.remove(user)


async def asked(users: Sequence[str]) -> Questions:
    """Return the questions of these users, asked in this order at once, when all were worked on."""
    questions = Questions()
    async with asyncio.TaskGroup() as group:
        for user in users:
            group.create_task(questions.ask(user))
    assert len(questions.worked_on) == len(users)
    return questions


async def test_user_who_asks_once_behind_others_who_ask_often_is_next() -> None:
    assert "a" in (await asked([*["b"] * 95, "a"])).worked_on[:2]
    questions = await asked([*["b"] * 95, *["c"] * 95, "a"])
    assert "a" in questions.worked_on[:3]
    assert questions.most_at_once == 2


async def test_users_who_ask_often_have_as_many_turns_each() -> None:
    questions = await asked(["b"] * 90 + ["c"] * 30 + ["d"] * 30)
    of_the_first = questions.worked_on[:60]
    assert [of_the_first.count(user) for user in "bcd"] == pytest.approx([20, 20, 20], abs=1)


@pytest.mark.parametrize("is_its_turn", [False, True])
async def test_who_is_canceled_keeps_no_turn(is_its_turn: bool) -> None:
    turns, is_over = Turns(), asyncio.Event()

    async def hold(user: str) -> None:
        async with turns.turn(user):
            await is_over.wait()

    holders = [asyncio.create_task(hold(user)) for user in "bc"]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(hold("a"))
    await asyncio.sleep(0)
    if is_its_turn:
        is_over.set()
        await asyncio.wait(holders, return_when=asyncio.FIRST_COMPLETED)
        is_over.clear()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    is_over.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*holders, *(hold(user) for user in "abc"))
