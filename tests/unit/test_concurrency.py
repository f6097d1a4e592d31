"""Errors of one object among many, and of several tasks at once."""

import asyncio
import logging

import pytest

from voda.concurrency import gather_all, log_unexpected, single_error
from voda.domain.errors import Fenced, InvalidInput


def test_error_that_nobody_foresaw_is_logged_and_ends_with_its_object(caplog: pytest.LogCaptureFixture) -> None:
    seen = []
    with caplog.at_level(logging.ERROR):
        for name in ("bad", "good"):
            with log_unexpected("looking at a job", name):
                seen.append(1 // (name == "good"))
    assert seen == [1]
    assert "bad" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_cancellation_passes() -> None:
    with pytest.raises(asyncio.CancelledError), log_unexpected("looking at a job", "a"):
        raise asyncio.CancelledError


def test_group_when_it_holds_one_error_is_that_error() -> None:
    error = InvalidInput("no")
    assert single_error(BaseExceptionGroup("group", [BaseExceptionGroup("inner", [error])])) is error


def test_group_when_something_was_not_foreseen_tells_that() -> None:
    bug = KeyError("bug")
    assert single_error(BaseExceptionGroup("group", [Fenced("later leader"), bug])) is bug


async def test_gather_when_one_fails_waits_for_all_and_raises_its_error() -> None:
    done = []

    async def work(number: int) -> None:
        await asyncio.sleep(0)
        if number == 0:
            raise InvalidInput("no")
        done.append(number)

    with pytest.raises(InvalidInput, match="no"):
        await gather_all(map(work, range(3)))
    assert done == [1, 2]
