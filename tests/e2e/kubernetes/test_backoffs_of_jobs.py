"""The Job controller pauses after failures, and forgets what is done beyond the size of a Job."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kubernetes.service import Voda, voda
from tests.e2e.kubernetes.test_jobs_submitted import submit
from tests.kube import client as api
from tests.kube.objects import an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from voda.cluster.kubernetes import leader_loop
from voda.cluster.kubernetes.convergence import stalls
from voda.cluster.kubernetes.convergence.desired import DesiredRun
from voda.cluster.kubernetes.mirror import ClusterMirror
from voda.events.text.stalls import stall_text
from voda.events.types import JobStalled


async def fail_twice(it: Voda, world: JobsWorld, name: str) -> None:
    """Let worker 1 fail twice: its successor comes 20 s after that."""
    for times in (1, 2):
        await world.until_it_is(lambda: runs(world, name, 1))
        await world.end_worker(name, 1, exit_code=3)
        await it.until_lost(name, 1, times=times)


async def runs(world: JobsWorld, name: str, index: int) -> bool:
    return index in await world.running(name)


async def test_job_that_voda_makes_grows_while_a_worker_of_it_that_failed_waits(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        manifest = tmp_path / "digits.yaml"
        manifest.write_text(yaml.safe_dump(an_indexed_job("digits", world.namespace, 2, least=2, most=4)))
        await submit(it, str(manifest))
        await it.until_runs("digits", 2)
        await fail_twice(it, world, "digits")
        await world.add_node("gpu-2", gpus=2)

        async def has_grown() -> bool:
            return {2, 3} <= (await world.running("digits")).keys()

        await world.until_it_is(has_grown)
        assert not await runs(world, "digits", 1)
        await it.until_runs("digits", 4)


async def test_growth_that_the_job_controller_holds_back_after_failures_is_told(
    jobs_world: JobsWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "OVER_S", 0.3)
    monkeypatch.setattr(leader_loop, "_SWEEP_S", 0.1)
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=4))
        await it.until_runs("a", 2)
        await fail_twice(it, world, "a")
        await world.add_node("gpu-2", gpus=2)

        async def is_told() -> bool:
            said = [stall_text(fact.reason) for fact in await it.facts(JobStalled, it.id("a"))]
            return any("(backoff) since 2 pods of it in a row failed" in each for each in said)

        await it.until(is_told)
        await it.until_runs("a", 4)


class Watches:
    """What the watches say, which can be held back as a busy server does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_held = False
        self._held: list[Callable[[], None]] = []
        for name in ("_see", "_see_job"):
            monkeypatch.setattr(ClusterMirror, name, self._holding(getattr(ClusterMirror, name)))

    def _holding(self, seen: Callable[..., None]) -> Callable[..., None]:
        def see(*args: Any) -> None:
            if self.is_held:
                self._held.append(lambda: seen(*args))
            else:
                seen(*args)

        return see

    def go_on(self) -> None:
        self.is_held = False
        for each in self._held:
            each()


async def test_shrink_that_races_a_success_does_not_throw_it_away(
    jobs_world: JobsWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches, world = Watches(monkeypatch), jobs_world
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 4, least=1, most=4))
        await it.until_runs("a", 4)
        watches.is_held = True
        await world.end_worker("a", 3)

        async def is_counted() -> bool:
            return str((await world.job("a"))["status"].get("completedIndexes")) == "3"

        await world.until_it_is(is_counted)
        words = ("--image", "train:1", "--workers", "1", "--gpus-per-worker", "1", "--name", "b")
        await submit(it, *words, "--", "python", "train.py")
        await world.until(lambda: len(it.service.view.cluster.plan("v100").placement.get(it.id("a"), ())) == 3)
        actuator, shrunk = it.service.kubernetes.leader.actuator, DesiredRun(("gpu-1",) * 3)
        await world.until(lambda: actuator.desired[it.id("a")] == shrunk and it.id("a") in actuator.underway)
        watches.go_on()
        await it.until_runs("b", 1)
        assert await is_counted()
        job = it.job(it.id("a"))
        assert job is not None
        assert (sorted(job.workers), job.done, job.done_of) == ([0, 1, 2], (3,), 4)
        await world.client.delete(api.JOBS, "b", world.namespace)
