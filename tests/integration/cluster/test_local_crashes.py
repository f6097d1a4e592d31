"""A voda that dies at any step of what it was asked to do, and the next one as early: the third one does it.

Rule: the steps are not listed here. Every change to the file system, process that is started and signal that is sent
is one, found by dying before the first, the second, and so on until there is none left to die before.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.local_jobs import FOREVER, Ground, a_torch_job, an_mpi_job
from tests.waiting import until
from voda import process_table
from voda.cluster.local.folder import JobFolder
from voda.cluster.local.run_spec import RunSpec
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob, StopJob
from voda.domain.reasons.failures import Exited, ReplicaFailed
from voda.events.types import JobCompleted, JobFailed, Observation, WorkerExited
from voda.kinds.pod_template import TorchElasticPolicy
from voda.process_table import kill_marked, marked_processes

_STEPS = (
    *((os, name) for name in ("mkdir", "rename", "replace", "unlink", "posix_spawn", "kill")),
    (signal, "pidfd_send_signal"),
)
_ALONE = f'exec 9>"running-${{VODA_REPLICA##*/}}"; flock -n 9 || touch doubled; {FOREVER.replace("0.05", "0.05 9>&-")}'
_START = StartJob(job_id="a", nodes=("n1",) * 2)


def a_gang(job_id: str, script: str) -> RunSpec:
    """Return a job of agents that meet."""
    return a_torch_job(job_id, script, elastic=TorchElasticPolicy())


class Dead(BaseException):
    """Of a voda that gets no further."""


@contextmanager
def dying(after: int) -> Iterator[asyncio.Event]:
    """Let this process take so many steps more, and none after them; yield what is set at its death."""
    left, death = count(after, -1), asyncio.Event()

    def mortal(step: Callable[..., Any]) -> Callable[..., Any]:
        def taken(*arguments: Any, **named: Any) -> Any:
            if next(left) <= 0:
                death.set()
                raise Dead
            return step(*arguments, **named)

        return taken

    # What dies in a callback of the loop is told there, and needs no telling.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _told: None)
    with pytest.MonkeyPatch.context() as patched, suppress(Dead):
        for module, name in _STEPS:
            patched.setattr(module, name, mortal(getattr(module, name)))
        yield death


_ACTIONS = {
    "start": (None, _START, (0, 1)),
    "grow": (_START, ResizeJob(job_id="a", nodes=("n1",) * 3), (0, 1, 2)),
    "shrink": (_START, ResizeJob(job_id="a", nodes=("n1",)), (0,)),
    "halt": (_START, HaltJob(job_id="a"), ()),
    "stop": (_START, StopJob(job_id="a", reason="canceled"), ()),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a_job", "before", "action", "workers"),
    [
        pytest.param(make, *_ACTIONS[name], id=f"{kind}-{name}")
        # Agents that meet differ from others at a resize alone.
        for kind, make, names in (
            ("mpi", an_mpi_job, _ACTIONS),
            ("torch", a_torch_job, _ACTIONS),
            ("gang", a_gang, ("grow", "shrink")),
        )
        for name in names
    ],
)
async def test_action_when_voda_dies_at_any_step_of_it_is_finished_by_the_third(
    tmp_path: Path, a_job: Callable[..., RunSpec], before: Action | None, action: Action, workers: tuple[int, ...]
) -> None:
    job = a_job("a", _ALONE)
    programs = len(workers) if job.kind == "torch" else bool(workers)
    held = None if isinstance(action, StopJob) else workers
    for steps in count():
        async with a_voda(tmp_path / str(steps), job) as ground:
            if before is not None:
                await ground.apply(before)
                await until(lambda: bool(_programs(ground.folder)))

            def is_done() -> bool:
                found = _programs(ground.folder)
                meetings = {_meeting_of(pid) for pid in found}
                meet = len(meetings) == 1 and all(size == str(programs) for size, _ in meetings)
                return _held(ground) == held and len(found) == programs and (meet or not found or not job.is_gang)

            with dying(steps) as death:
                await ground.apply(action)
                await until(lambda: death.is_set() or is_done())
            if not death.is_set():
                return
            await ground.cluster.close()
            with dying(steps):
                await _goes_on(ground, action, workers)
            await ground.cluster.close()
            await _goes_on(ground, action, workers)
            await until(is_done)
            assert not (ground.folder / "a/doubled").exists()


@pytest.mark.slow
async def test_boot_when_voda_dies_at_any_step_of_taking_over_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_torch_job("a", FOREVER, policy={"backoff_limit": 0})
    for steps in count():
        async with a_voda(tmp_path / str(steps), job) as ground:
            await ground.apply(_START)
            await until(lambda: len(_programs(ground.folder)) == 2)
            await ground.cluster.close()
            kill_marked(ground.folder)
            with monkeypatch.context() as another:
                another.setattr(process_table, "boot_id", lambda: "another")
                with dying(steps) as death:
                    await ground.open()
                if not death.is_set():
                    return
                await ground.cluster.close()
                await ground.open()
                await ground.until_workers()
                assert (await ground.cluster.observe()).ended == {}
                await _goes_on(ground, _START, (0, 1))


BADLY = ReplicaFailed(replica="launcher", how=Exited(exit_code=3))


@pytest.mark.parametrize(
    ("code", "end"),
    [
        pytest.param(0, JobCompleted(job_id="a"), id="well"),
        pytest.param(
            3, JobFailed(job_id="a", reason=ReplicaFailed(replica="launcher", how=Exited(exit_code=3))), id="badly"
        ),
    ],
)
async def test_end_when_voda_dies_at_any_step_of_dealing_with_it_is_told_by_the_third(
    tmp_path: Path, code: int, end: Observation
) -> None:
    job = an_mpi_job("a", f"until [ -e go ]; do sleep 0.01; done; exit {code}", policy={"backoff_limit": 0})
    for steps in count():
        async with a_voda(tmp_path / str(steps), job) as ground:
            await ground.apply(_START)
            await until(lambda: bool(_programs(ground.folder)))
            with dying(steps) as death:
                (ground.folder / "a/go").touch()
                await until(lambda: death.is_set() or any(isinstance(told, WorkerExited) for told in ground.notices()))
            if not death.is_set():
                return
            await ground.cluster.close()
            with dying(steps):
                await ground.open()
            await ground.cluster.close()
            await ground.open()
            await ground.until_workers()
            assert (await ground.cluster.observe()).ended == {"a": end}


async def _goes_on(ground: Ground, action: Action, workers: tuple[int, ...]) -> None:
    """Take over as whoever holds the plan does: what is not as planned is asked for again."""
    await ground.open()
    if await ground.workers() != workers:
        await ground.apply(action)


@asynccontextmanager
async def a_voda(home: Path, job: RunSpec) -> AsyncIterator[Ground]:
    """Yield an open cluster that knows a job."""
    ground = Ground(folder=home / "jobs")
    ground.admit(job)
    await ground.open()
    try:
        yield ground
    finally:
        await ground.end()


def _held(ground: Ground) -> tuple[int, ...] | None:
    """Return the workers that the job has by its record and that are not to leave; None where it is forgotten."""
    record = JobFolder(ground.folder, "a").load()
    if record is None:
        return None
    return record.wanted if record.state in ("running", "halted") and not record.leaving else (-1,)


def _programs(jobs: Path) -> list[int]:
    """Return the shells that run for the job, not what they start: one is its launcher's, or one each worker's."""
    shells = [pid for pid, _ in marked_processes(jobs / "a") if _read(pid, "cmdline").startswith("/bin/sh")]
    return [pid for pid in shells if _group_of(pid) == pid]


def _meeting_of(pid: int) -> tuple[str, str]:
    """Return how many others a program was told to meet, itself included, and where."""
    env = dict(each.partition("=")[::2] for each in _read(pid, "environ").split("\0"))
    return env.get("PET_NNODES", ""), env.get("PET_RDZV_ENDPOINT", "")


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
