"""Claims about telling when the API server is unwell: nothing waits for it, and what is recent is told in the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.kube.misbehaving import Answer, Misbehaving, Speaking, refused, said
from tests.waiting import until
from voda.clock import VirtualClock
from voda.operator.status.announcer import RECENT_S, Announcer
from voda.operator.status.kube_events import Announcement, Subject

NOW = 1_700_000_000.0


def an_announcement(key: str, *, at: float = NOW) -> Announcement:
    """Return something to tell."""
    subject = Subject(api_version="kubeflow.org/v1", kind="PyTorchJob", namespace="team", name="torch", uid="u1")
    return Announcement(subject=subject, reason="Resized", message="1 -> 2 workers", at=at, key=key)


@asynccontextmanager
async def a_sending(*answers: Answer) -> AsyncIterator[tuple[Announcer, Misbehaving, VirtualClock]]:
    """Yield an announcer that sends to a server which answers as told."""
    clock = VirtualClock(NOW)
    async with Misbehaving(create=answers) as server, Speaking(server.url) as api:
        announcer = Announcer(api, clock, per_s=1_000.0, retry_s=0.01)
        sending = asyncio.create_task(announcer.run())
        try:
            yield announcer, server, clock
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending


async def test_announcement_that_the_server_failed_to_take_is_told_again() -> None:
    async with a_sending(refused(500), refused(500), said({}, 201)) as (announcer, server, _):
        announcer.put(an_announcement("1"))
        await until(lambda: server.asked["create"] == 3)
        await until(lambda: len(announcer) == 0)


@pytest.mark.parametrize("code", [403, 404, 422])
async def test_announcement_that_the_server_refuses_holds_up_no_other(code: int) -> None:
    async with a_sending(refused(code), said({}, 201)) as (announcer, server, _):
        announcer.put(an_announcement("1"))
        announcer.put(an_announcement("2"))
        await until(lambda: server.asked["create"] >= 2)


async def test_announcement_that_was_told_before_is_done() -> None:
    async with a_sending(refused(409), said({}, 201)) as (announcer, server, _):
        announcer.put(an_announcement("1"))
        announcer.put(an_announcement("2"))
        await until(lambda: server.asked["create"] >= 2)


async def test_announcement_that_could_not_be_told_for_minutes_is_dropped() -> None:
    async with a_sending(refused(500)) as (announcer, server, clock):
        announcer.put(an_announcement("1"))
        await until(lambda: server.asked["create"] >= 2)
        clock.move_to(NOW + RECENT_S + 1.0)
        await until(lambda: len(announcer) == 0)


async def test_old_news_is_not_told() -> None:
    async with a_sending(said({}, 201)) as (announcer, server, _):
        announcer.put(an_announcement("old", at=NOW - RECENT_S - 1.0))
        announcer.put(an_announcement("new"))
        await until(lambda: server.asked["create"] == 1)
        await until(lambda: len(announcer) == 0)
        assert server.asked["create"] == 1
