"""A leader of a local pool that stood still, and goes on after its successor began: it changes nothing any more."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from tests.local_jobs import FOREVER, Ground, a_ground, a_torch_job, an_mpi_job
from tests.waiting import until
from voda.cluster.local.fence import Fence
from voda.domain.errors import Fenced
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob, StopJob
from voda.events.types import JobCompleted, WorkerExited

_LEADER = """
import asyncio, sys
from pathlib import Path
import msgspec
from tests.local_jobs import Ground
from voda.cluster.local.run_spec import RunSpec
from voda.domain.errors import Fenced

async def main():
    ground = Ground(folder=Path(sys.argv[1]))
    await ground.open()
    await ground.start(msgspec.json.decode(sys.argv[2], type=RunSpec))
    print("started", flush=True)
    try:
        await ground.cluster.run()
    except Fenced as error:
        print(error, flush=True)

asyncio.run(main())
"""


def _contents(folder: Path) -> Mapping[str, bytes]:
    """Return the files of a job that voda writes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / ".voda").rglob("*"))
        if path.is_file() and path.name != "times"
    }


async def _until_ended(ground: Ground, job_id: str) -> None:
    async def is_over() -> bool:
        return not (await ground.cluster.observe()).workers

    await ground.until_told(JobCompleted(job_id=job_id), WorkerExited(job_id=job_id, workers=(0,), cause="finished"))
    assert await is_over()


@pytest.mark.parametrize(
    "action",
    [
        StartJob(job_id="b", nodes=("n1",)),
        ResizeJob(job_id="a", nodes=("n1", "n1")),
        HaltJob(job_id="a"),
        StopJob(job_id="a", reason="canceled"),
    ],
    ids=lambda action: type(action).__name__,
)
async def test_action_when_another_leads_by_now_is_refused_and_changes_nothing(action: Action, tmp_path: Path) -> None:
    job, unstarted = an_mpi_job("a", f"echo up; {FOREVER}"), an_mpi_job("b", FOREVER)
    old = Ground(folder=tmp_path / "jobs")
    await old.open()
    old.admit(unstarted)
    await old.start(job)
    await old.until_logged("up")
    async with a_ground(tmp_path, run_specs={"a": job, "b": unstarted}) as new:
        before = _contents(tmp_path / "jobs/a")
        with pytest.raises(Fenced, match="pool default"):
            await old.apply(action)
        with pytest.raises(Fenced):
            await old.cluster.observe()
        assert _contents(tmp_path / "jobs/a") == before
        assert not (tmp_path / "jobs/b").exists()
        assert await new.workers() == (0,)
        await old.cluster.close()


async def test_end_when_two_leaders_see_it_is_judged_by_the_newer_alone(tmp_path: Path) -> None:
    job = a_torch_job("a", f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.02; done")
    old = Ground(folder=tmp_path / "jobs")
    await old.open()
    await old.start(job)
    await old.until_logged("up", replica="worker-0")
    old.notices().clear()
    async with a_ground(tmp_path, run_specs={"a": job}) as new:
        watching = asyncio.create_task(old.cluster.run())
        (tmp_path / "go").touch()
        await _until_ended(new, "a")
        with pytest.raises(Fenced):
            await watching
        assert old.notices() == []
        await old.cluster.close()


async def test_leader_when_it_goes_on_after_its_successor_ended_its_job_leaves_the_record_alone(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    job = a_torch_job("a", f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.02; done")
    leader = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _LEADER,
        str(jobs),
        msgspec.json.encode(job).decode(),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert leader.stdout is not None
    try:
        assert await leader.stdout.readline() == b"started\n"
        await until((jobs / "a/logs/worker-0.log").exists)
        leader.send_signal(signal.SIGSTOP)
        async with a_ground(tmp_path, run_specs={"a": job}) as new:
            (tmp_path / "go").touch()
            await _until_ended(new, "a")
            await new.stop("a")
            before = _contents(jobs / "a")
            assert ".voda/record.json" not in before
            leader.send_signal(signal.SIGCONT)
            async with asyncio.timeout(60):
                assert (await leader.stdout.readline()).startswith(b"pool default: process ")
            assert _contents(jobs / "a") == before
    finally:
        if leader.returncode is None:
            leader.kill()
        await leader.wait()


async def test_job_that_keeps_the_lock_of_the_token_or_removes_it_stops_nothing(tmp_path: Path) -> None:
    leaders = '"$VODA_JOB_DIR/../.leaders"'
    locks = f"exec flock {leaders}/default.json sh -c 'echo locked; until [ -e {tmp_path}/go ]; do sleep 0.02; done'"
    job = a_torch_job("a", f"{locks}; ")
    removes = a_torch_job("b", f"rm -rf {leaders}")
    old = Ground(folder=tmp_path / "jobs")
    await old.open()
    await old.start(job)
    await old.until_logged("locked", replica="worker-0")
    assert await old.workers() == (0,)
    # The next voda is not kept waiting either.
    async with a_ground(tmp_path, run_specs={"a": job, "b": removes}) as new:
        assert await new.workers() == (0,)
        (tmp_path / "go").touch()
        await _until_ended(new, "a")
        await new.start(removes)
        await new.until_told(JobCompleted(job_id="b"))
        new.cluster.fence.check()
    await old.cluster.close()


async def test_cluster_when_its_former_leader_stands_still_in_a_turn_opens_after_it(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    old = Fence(jobs, "default")
    await old.take("old", 1)
    new = Ground(folder=jobs)
    with old.turn():
        opening = asyncio.create_task(new.open(epoch=2))
        await until((jobs / ".leaders/default.json").exists)
        assert not opening.done()
    await opening
    assert (await new.cluster.observe()).workers == {}
    await new.end()
