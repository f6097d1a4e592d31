"""A port that another program had is listened at once nothing is in the way."""

import asyncio
import logging
import os
import resource
from collections.abc import Iterator

import pytest

from voda.api import sockets
from voda.api.sockets import PortListener, listen
from voda.domain.errors import AlreadyExists, InvalidInput


async def test_port_is_tried_on_whatever_is_in_the_way_and_that_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sockets, "_TAKEN_S", 0.0)
    trouble: Iterator[Exception] = iter(
        [AlreadyExists("taken"), InvalidInput("no buffers"), InvalidInput("no buffers"), OSError("too many open files")]
    )

    async def attempt() -> asyncio.Server:
        for error in trouble:
            raise error
        return await listen(asyncio.Protocol, "127.0.0.1", 0, None)

    listener = PortListener(attempt, "127.0.0.1", is_secure=False)
    with caplog.at_level(logging.WARNING):
        await listener.open_when_free()
    listener.close()
    assert (listener.url.startswith("http://127.0.0.1:"), listener.problem) == (True, "")
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "no buffers",
        "too many open files",
    ]


async def test_port_without_a_file_descriptor_left_is_not_listened_at() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Every lower number is in use.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], _lowest_free()), limits[1]))
    try:
        with pytest.raises(InvalidInput, match="too many open files"):
            await listen(asyncio.Protocol, "127.0.0.1", 0, None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _lowest_free() -> int:
    os.close(number := os.dup(0))
    return number
