"""Errors that nobody foresaw, about one object among many."""

import asyncio
import logging

import pytest

from voda.concurrency import survived


def test_error_that_nobody_foresaw_is_logged_and_ends_with_its_object(caplog: pytest.LogCaptureFixture) -> None:
    seen = []
    with caplog.at_level(logging.ERROR):
        for name in ("bad", "good"):
            with survived("looking at a job", name):
                seen.append(1 // (name == "good"))
    assert seen == [1]
    assert "bad" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_whoever_is_cancelled_does_not_survive() -> None:
    with pytest.raises(asyncio.CancelledError), survived("looking at a job", "a"):
        raise asyncio.CancelledError
