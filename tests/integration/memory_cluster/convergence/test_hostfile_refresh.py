"""Launchers are made to look at their hosts once a burst of changes is over."""

import asyncio
from contextlib import suppress
from typing import Any

from tests.kube.acting import Stage
from tests.virtual_time import virtually

LAUNCHER = "/api/v1/namespaces/ns/pods/a-launcher-x"


async def launcher_refreshed(stage: Stage, *, for_s: float = 10.0) -> int:
    """Let the poker work, and return how often the launcher was poked so far."""
    with suppress(TimeoutError):
        async with asyncio.timeout(for_s):
            await stage.refresher.run()
    return stage.wire.asked.count(("PATCH", LAUNCHER))


def a_stage(*, phase: str = "Running", **fields: Any) -> Stage:
    stage = Stage()
    stage.add_node("n1")
    stage.add_job("a", workers=1, **fields)
    stage.add_launcher("a", phase)
    stage.add_worker("a", 0, node="n1", phase="Running")
    stage.refresher.see("a")
    return stage


def grow(stage: Stage, *indices: int) -> None:
    for index in indices:
        stage.add_worker("a", index, node="n1", phase="Running")
        stage.refresher.see("a")


def test_launcher_when_workers_come_in_a_burst_is_poked_once() -> None:
    async def act() -> None:
        stage = a_stage()
        grow(stage, 1)
        async with asyncio.TaskGroup() as group:
            count = group.create_task(launcher_refreshed(stage))
            for index in (2, 3):
                await asyncio.sleep(1.5)
                grow(stage, index)
        assert count.result() == 1
        grow(stage, 4)
        assert await launcher_refreshed(stage) == 2

    virtually(act())


def test_launcher_when_nothing_of_its_workers_changed_is_left_alone() -> None:
    async def act() -> None:
        stage = a_stage()
        stage.refresher.see("a")
        assert await launcher_refreshed(stage) == 0

    virtually(act())


def test_launcher_when_its_job_is_rigid_or_it_does_not_run_is_left_alone() -> None:
    async def act() -> None:
        for stage in (a_stage(max_replicas=1), a_stage(phase="Pending")):
            grow(stage, 1)
            assert await launcher_refreshed(stage) == 0

    virtually(act())


def test_launcher_when_the_server_is_away_is_no_failure() -> None:
    async def act() -> None:
        stage = a_stage()
        grow(stage, 1)
        stage.wire.is_down = True
        assert await launcher_refreshed(stage) == 0
        stage.wire.is_down = False
        grow(stage, 2)
        assert await launcher_refreshed(stage) == 1

    virtually(act())
