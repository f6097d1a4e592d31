"""A wait that takes too long says what was awaited, and where that is written."""

import asyncio
from functools import partial

import pytest

from tests.waiting import until, until_it_is

pytestmark = pytest.mark.virtual_time


async def test_wait_when_its_condition_never_holds_names_the_condition() -> None:
    def never() -> bool:
        return False

    async def never_either(number: int) -> bool:
        return number < 0

    with pytest.raises(AssertionError, match=r"^waited 5 s in vain until \S+\.never \(test_waiting\.py:14\)$"):
        await until(never, within_s=5.0)
    with pytest.raises(AssertionError, match=r"^waited 5 s in vain until \S+\.never_either \(test_waiting\.py:17\)$"):
        await until_it_is(partial(never_either, 1), within_s=5.0)
    with pytest.raises(AssertionError, match=r"^waited 5 s in vain until all is well$"):
        await until_it_is(partial(never_either, 1), within_s=5.0, what="all is well")


async def test_wait_when_its_condition_itself_times_out_fails_with_that() -> None:
    async def asks() -> bool:
        async with asyncio.timeout(1.0):
            return await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await until_it_is(asks, within_s=5.0)
