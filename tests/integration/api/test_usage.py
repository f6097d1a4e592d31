"""Usage over HTTP: of a log that grows, from a snapshot, and for whom."""

import asyncio
import math
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.builders import a_spec
from tests.service import START, Service, a_service
from tests.waiting import until
from voda.api.presenters.usage import usage_of
from voda.auth.tokens import Authenticator
from voda.cli.render.usage import usage_table
from voda.clock import VirtualClock
from voda.controller.follower import catch_up
from voda.controller.snapshots import take_snapshots
from voda.events.types import JobCompleted, JobSubmitted, WorkerExited, WorkerStarted
from voda.log.memory import MemoryStore
from voda.log.store import EventStore
from voda.projections.jobs.registry import JobRegistry
from voda.projections.usage import Usage
from voda.timetravel.accounting import usage_between
from voda.wire.housekeeping import UsageView

HOUR_S = 3_600.0


async def two_jobs(service: Service) -> None:
    """Ada's job of two GPUs runs for two hours and goes on; Bob's ran in the first of them."""
    clock = service.backend.journal.clock
    assert isinstance(clock, VirtualClock)
    for job_id, user in (("a", "ada"), ("b", "bob")):
        await service.happens(JobSubmitted(spec=a_spec(job_id, user=user, gpus_per_replica=2)))
        await service.happens(WorkerStarted(job_id=job_id, workers={0: "n1"}))
    clock.move_to(START + HOUR_S)
    await service.happens(JobCompleted(job_id="b"))
    await service.happens(WorkerExited(job_id="b", workers=(0,)))
    clock.move_to(START + 2 * HOUR_S)


async def usage(service: Service, query: str, token: str = "") -> UsageView:
    answer = await service.ask("GET", f"/api/v1/usage{query}", token=token)
    assert answer.status == 200, answer.body
    return answer.as_a(UsageView)


async def test_usage_when_a_job_runs_counts_up_to_now() -> None:
    async with a_service() as service:
        await two_jobs(service)
        found = await usage(service, "")
        assert {row.key: (row.gpu_hours, row.wall_hours, row.completed) for row in found.rows} == {
            "ada": (4.0, 2.0, 0),
            "bob": (2.0, 1.0, 1),
        }
        assert (found.total.gpu_hours, found.total.jobs) == (6.0, 2)


async def test_usage_when_a_window_is_given_counts_what_lies_in_it() -> None:
    async with a_service() as service:
        await two_jobs(service)
        assert (await usage(service, "?since=30m")).total.gpu_hours == 1.0
        assert math.isclose((await usage(service, "?since=90m&until=30m")).total.gpu_hours, 3.0)
        assert (await service.ask("GET", "/api/v1/usage?since=1h&until=2h")).status == 422
        assert (await service.ask("GET", "/api/v1/usage?since=lately")).status == 422


async def test_usage_when_a_user_asks_is_the_users_own(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock())
    token, wall = access.add("ada", "user"), access.add("wall", "viewer")
    async with a_service(access=access) as service:
        await two_jobs(service)
        assert [row.key for row in (await usage(service, "", token)).rows] == ["ada"]
        assert [row.key for row in (await usage(service, "?user=ada", token)).rows] == ["ada"]
        assert (await service.ask("GET", "/api/v1/usage?user=bob", token=token)).status == 403
        assert len((await usage(service, "", wall)).rows) == 2
        assert [row.key for row in (await usage(service, "?user=bob", wall)).rows] == ["bob"]


async def test_usage_when_a_snapshot_lies_before_the_window_is_the_same_as_without() -> None:
    store = MemoryStore()
    async with a_service(store) as service:
        await two_jobs(service)
        end, since = START + 2 * HOUR_S, START + 1.5 * HOUR_S
        before = await usage_between(store, since, end)
        registry = JobRegistry()
        position = await catch_up(store, [registry], after=0, until=5)
        await take_snapshots(store, [registry], position)
        after = await usage_between(store, since, end)
        assert before.total() == after.total()
        assert after.total().gpu_s == 2 * 0.5 * HOUR_S


async def test_usage_when_the_log_is_long_is_folded_and_summed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set[str]()

    def noting(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                found.add(work.__name__)
            return work(*arguments, **named)

        return run

    monkeypatch.setattr("voda.api.routes.usage.usage_of", noting(usage_of))
    for name in ("apply", "close", "rows"):
        monkeypatch.setattr(Usage, name, noting(getattr(Usage, name)))
    async with a_service() as service:
        await two_jobs(service)
        assert (await usage(service, "")).total.jobs == 2
    assert found == set()


async def test_usage_when_it_has_too_many_rows_says_how_many_are_left_out() -> None:
    async with a_service() as service:
        await two_jobs(service)
        found = await usage_between(service.backend.journal.store, START, START + 2 * HOUR_S)
        view = usage_of(found, "job", "", most=1)
        assert ([row.key for row in view.rows], view.left_out, view.total.jobs) == (["a"], 1, 2)
        *_, last = usage_table(view, datetime.fromtimestamp(START, UTC), width=None)
        assert last.plain.startswith("1 row more not shown")
        assert usage_of(found, "job", "").left_out == 0


async def test_usage_when_one_user_asks_often_others_get_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Authenticator.open(tmp_path, VirtualClock())
    ada, wall = access.add("ada", "user"), access.add("wall", "viewer")
    goes_on, asked = asyncio.Event(), list[str]()

    async def slow(store: EventStore, since: float, until: float, *, user: str) -> Usage:
        asked.append(user)
        if user == "ada":
            await goes_on.wait()
        return await usage_between(store, since, until, user=user)

    monkeypatch.setattr("voda.api.routes.usage.usage_between", slow)
    async with a_service(access=access) as service, asyncio.TaskGroup() as group:
        await two_jobs(service)
        for _ in range(5):
            group.create_task(usage(service, "", ada))
        await until(lambda: bool(asked))
        async with asyncio.timeout(60):
            assert len((await usage(service, "", wall)).rows) == 2
        assert asked == ["ada", ""]
        goes_on.set()
