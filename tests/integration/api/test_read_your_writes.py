"""Reads that ask for what was written through another replica."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.service import a_manifest, a_service
from voda.events.envelope import Event
from voda.log.memory import MemoryStore
from voda.log.store import EventStore
from voda.wire.base import Problem

WAIT_S = 60.0


class Late:
    """A log that one replica reads late: until it is let go on, there is nothing to follow."""

    def __init__(self, log: EventStore) -> None:
        self.let = asyncio.Event()
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def tail(self, after: int) -> AsyncIterator[Event]:
        await self.let.wait()
        async for event in self._log.tail(after):
            yield event


class Held:
    """A log whose pages, once they are read, are handed over when they are let go."""

    def __init__(self, log: EventStore) -> None:
        self.is_holding = False
        self.reads, self.let = asyncio.Event(), asyncio.Event()
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        found = await self._log.read(after, limit, stream=stream)
        if self.is_holding:
            self.reads.set()
            await self.let.wait()
        return found


async def test_read_through_another_replica_waits_until_it_has_read_what_was_written() -> None:
    log = MemoryStore()
    async with a_service(log) as one:
        late: Any = Late(log)
        async with a_service(late) as other:
            written = await one.ask("POST", "/api/v1/jobs", body=a_manifest("digits"))
            position = written.headers["Voda-Position"]
            assert (written.status, int(position)) == (201, await log.position())
            assert (await other.ask("GET", "/api/v1/jobs/digits")).status == 404
            asked = asyncio.ensure_future(other.ask("GET", f"/api/v1/jobs/digits?after={position}"))
            listed = asyncio.ensure_future(other.ask("GET", f"/api/v1/jobs?limit=1&after={position}"))
            async with asyncio.timeout(WAIT_S):
                # An answer without a position does not wait for those that do.
                assert (await other.ask("GET", "/api/v1/jobs")).json()["items"] == []
                late.let.set()
                assert [(await asked).status, (await listed).status] == [200, 200]
            assert len((await listed).json()["items"]) == 1
            assert int((await asked).headers["Voda-Position"]) >= int(position)


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "", "9" * 40, "1&after=2"])
async def test_read_that_asks_for_no_position_is_refused(after: str) -> None:
    async with a_service() as service:
        answer = await service.ask("GET", f"/api/v1/pools?after={after}")
        assert (answer.status, answer.as_a(Problem).field) == (422, "after")


async def test_read_that_asks_for_a_position_of_another_log_is_refused() -> None:
    async with a_service() as service:
        answer = await service.ask("GET", "/api/v1/nodes?after=1000")
        assert answer.status == 422
        assert "it is of another log" in answer.as_a(Problem).detail


async def test_change_through_another_replica_finds_the_job_that_it_is_about() -> None:
    log = MemoryStore()
    async with a_service(log) as one:
        late: Any = Late(log)
        async with a_service(late) as other:
            written = await one.ask("POST", "/api/v1/jobs", body=a_manifest("digits"))
            after = f"?after={written.headers['Voda-Position']}"
            assert (await other.ask("DELETE", "/api/v1/jobs/digits")).status == 404
            changing = other.ask("PATCH", f"/api/v1/jobs/digits{after}", body={"priority": 7})
            asked = asyncio.ensure_future(changing)
            async with asyncio.timeout(WAIT_S):
                late.let.set()
                assert (await asked).status == 200
                assert (await other.ask("DELETE", f"/api/v1/jobs/digits{after}&reason=mistake")).status == 202


async def test_answer_that_took_long_tells_no_position_that_it_does_not_show() -> None:
    log = MemoryStore()
    held: Any = Held(log)
    async with a_service(held) as service:
        first = await service.ask("POST", "/api/v1/jobs", body=a_manifest("one"))
        held.is_holding = True
        asked = asyncio.ensure_future(service.ask("GET", "/api/v1/events"))
        async with asyncio.timeout(WAIT_S):
            await held.reads.wait()
            second = await service.ask("POST", "/api/v1/jobs", body=a_manifest("two"))
            held.let.set()
            shown = await asked
        assert int(second.headers["Voda-Position"]) > int(first.headers["Voda-Position"])
        assert shown.headers["Voda-Position"] == first.headers["Voda-Position"]
