"""A machine that goes down under its jobs, orderly or not, and somebody who clears up its processes."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from tests.local_jobs import FOREVER, Ground, a_torch_job, an_mpi_job
from tests.waiting import until
from voda import process_table
from voda.cluster.local.folder import JobFolder
from voda.cluster.local.run_spec import RunSpec
from voda.events.types import JobCompleted, JobFailed, WorkerExited
from voda.process_table import marked_processes

_CHECKPOINTS = f"trap 'echo saved; exit 0' TERM; echo up; {FOREVER}"
_ONCE = {"policy": {"backoff_limit": 0}}


@pytest.fixture
def boots(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes this another boot of the machine."""

    def boot() -> None:
        monkeypatch.setattr(process_table, "boot_id", lambda: "another")

    return boot


def _tell_all(ground: Ground, number: signal.Signals) -> None:
    """Signal every process of every job, parents and children alike, as a machine that shuts down does."""
    for pid, _ in marked_processes(ground.folder):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_up_again(ground: Ground, times: int) -> bool:
    return ground.log(replica="worker-0").splitlines().count("up") == times


def _is_deserted(ground: Ground) -> bool:
    return not any(marked_processes(ground.folder))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["orderly", "at once"])
@pytest.mark.parametrize("a_job", [an_mpi_job, a_torch_job], ids=["mpi", "torch"])
async def test_job_when_its_machine_goes_down_is_neither_done_nor_failed_and_starts_again(
    ground: Ground, boots: Callable[[], None], a_job: Callable[..., RunSpec], number: signal.Signals
) -> None:
    replica = "launcher" if a_job is an_mpi_job else "worker-0"
    await ground.start(a_job("a", _CHECKPOINTS, **_ONCE), workers=2)
    await ground.until_logged("up", replica=replica)
    await ground.cluster.close()
    _tell_all(ground, number)
    await until(lambda: _is_deserted(ground))
    boots()
    await ground.open()
    await ground.until_told(WorkerExited(job_id="a", workers=(0, 1), cause="node_lost"))
    assert (await ground.cluster.observe()).ended == {}
    await ground.resize("a", 2)
    await until(lambda: ground.log(replica=replica).count("up") == 2)


async def test_end_when_it_came_before_the_machine_went_down_is_learned(
    ground: Ground, boots: Callable[[], None]
) -> None:
    await ground.start(an_mpi_job("a", "until [ -e go ]; do sleep 0.01; done"))
    await ground.cluster.close()
    (ground.folder / "a/go").touch()
    await until((ground.folder / "a/.voda/replicas/launcher/exit.json").exists)
    boots()
    await ground.open()
    await ground.until_told(
        JobCompleted(job_id="a"),
        WorkerExited(job_id="a", workers=(0,), cause="finished"),
    )


async def test_launcher_when_others_tell_it_to_end_runs_again_and_did_not_fail(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", _CHECKPOINTS, **_ONCE))
    await ground.until_logged("up")
    _tell_all(ground, signal.SIGTERM)
    await until(lambda: ground.log().count("up") == 2)
    record = JobFolder(ground.folder, "a").load()
    assert record is not None
    assert (record.evictions, record.failures) == (1, 0)
    # Not at once: who told it may be about to tell the next one, too.
    assert record.not_before > record.resumed_at
    assert not any(isinstance(notice, JobCompleted | JobFailed) for notice in ground.notices())


async def test_agent_when_others_tell_it_to_end_is_told_as_evicted(ground: Ground) -> None:
    await ground.start(a_torch_job("a", _CHECKPOINTS, min_replicas=1, **_ONCE), workers=2)
    await ground.until_logged("up", replica="worker-1")
    for pid, _ in marked_processes(ground.folder / "a/.voda/replicas/worker-1"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    await ground.until_told(WorkerExited(job_id="a", workers=(1,), cause="evicted", exit_code=0))
    assert await ground.workers() == (0,)


async def test_agents_when_others_tell_them_to_end_again_and_again_wait_longer_each_time(ground: Ground) -> None:
    await ground.start(a_torch_job("a", _CHECKPOINTS, **_ONCE))
    for evictions in (1, 2):
        await until(partial(_is_up_again, ground, evictions))
        _tell_all(ground, signal.SIGTERM)
        await ground.until_workers()
        record = JobFolder(ground.folder, "a").load()
        assert record is not None
        assert record.evictions == evictions
        await ground.resize("a", 1)


async def test_deadline_when_all_workers_were_taken_away_waits_with_the_job(ground: Ground) -> None:
    await ground.start(a_torch_job("a", _CHECKPOINTS, policy={"active_deadline_s": 60.0}))
    await ground.until_logged("up", replica="worker-0")
    _tell_all(ground, signal.SIGTERM)
    await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="evicted", exit_code=0))
    job = ground.cluster.jobs["a"]
    job.record.resumed_at -= 60.0
    job._check_deadline()
    assert not any(isinstance(notice, JobFailed) for notice in ground.notices())
    await ground.resize("a", 1)
    job._check_deadline()
    assert (await ground.cluster.observe()).ended == {}
