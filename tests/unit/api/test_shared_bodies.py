"""Answers that many ask for at once."""

import asyncio

import pytest

from voda.api.streams.shared_bodies import SharedBodies


class Maker:
    """Makes answers when it may, and counts them."""

    def __init__(self) -> None:
        self.made = 0
        self.may = asyncio.Event()

    async def make(self) -> bytes:
        self.made += 1
        await self.may.wait()
        return b"%d" % self.made


async def test_body_when_many_ask_at_once_is_made_once_and_is_one_copy() -> None:
    shared, maker = SharedBodies(), Maker()
    asking = [asyncio.create_task(shared.body("a", maker.make)) for _ in range(50)]
    await asyncio.sleep(0)
    maker.may.set()
    bodies = await asyncio.gather(*asking)
    assert maker.made == 1
    assert {id(body) for body in bodies} == {id(await shared.body("a", maker.make))}


async def test_body_when_who_asked_first_goes_away_reaches_the_others() -> None:
    shared, maker = SharedBodies(), Maker()
    first, second = (asyncio.create_task(shared.body("a", maker.make)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    maker.may.set()
    assert await second == b"1"


async def test_body_when_it_could_not_be_made_is_made_anew() -> None:
    shared, maker = SharedBodies(), Maker()

    async def fail() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await shared.body("a", fail)
    maker.may.set()
    assert await shared.body("a", maker.make) == b"1"


async def test_body_when_others_were_asked_for_since_is_not_held_for_ever() -> None:
    shared, maker = SharedBodies(), Maker()
    maker.may.set()
    for key in "abcde":
        await shared.body(key, maker.make)
    assert await shared.body("e", maker.make) == b"5"
    assert await shared.body("a", maker.make) == b"6"
