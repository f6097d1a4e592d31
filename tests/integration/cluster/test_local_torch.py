"""Torch agents under real torchrun: they begin and end together, whatever is resized and whichever of them fails."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.local_jobs import Ground, a_ground, a_torch_job, base_environment
from tests.needs import TORCH_VENV, needs_torch_venv
from tests.waiting import is_alive, until
from voda.cluster.local.run_spec import RunSpec
from voda.events.types import JobCompleted, ProgramFailed

pytestmark = [pytest.mark.slow, needs_torch_venv()]

BEGIN = """
import os, pathlib, sys, time
print(f"begun as {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", flush=True)
import torch, torch.distributed as dist
print(f"imported as {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", flush=True)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.ones(1)
dist.all_reduce(x)
print(f"step of {rank} of {size}", flush=True)
here = pathlib.Path(os.environ["VODA_JOB_DIR"])
"""
FOREVER = """
while True:
    dist.all_reduce(x)
    time.sleep(0.05)
"""


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    base = base_environment()
    async with a_ground(tmp_path, base={**base, "PATH": f"{TORCH_VENV / 'bin'}:{base['PATH']}"}) as made:
        yield made


def a_training(tmp_path: Path, script: str, **fields: Any) -> RunSpec:
    """Return a job, each of whose workers runs a script by torchrun."""
    path = tmp_path / "train.py"
    path.write_text(BEGIN + script)
    return a_torch_job("a", "", argv=("torchrun", str(path)), **fields)


def failures(ground: Ground) -> list[str]:
    """Return the replicas whose failures were told, one for each failure."""
    return [told.replica for told in ground.notices() if isinstance(told, ProgramFailed)]


async def until_each(ground: Ground, what: str, size: int, *, times: int = 1) -> None:
    """Wait until the ranks of a size got somewhere, each on the worker of its index, for the n-th time."""

    def all_have() -> bool:
        lines = [f"{what} {index} of {size}\n" for index in range(size)]
        return all(ground.log("a", f"worker-{index}").count(line) >= times for index, line in enumerate(lines))

    await until(all_have)


async def test_job_when_resized_at_any_moment_of_a_start_goes_on_and_no_failure_is_counted(
    ground: Ground, tmp_path: Path
) -> None:
    await ground.start(a_training(tmp_path, FOREVER), workers=2)
    # Ranks that import torch, that are about to meet, that train; and agents that have just begun, or not yet.
    await until_each(ground, "begun as", 2)
    await ground.resize("a", 1)
    await until_each(ground, "step of", 1)
    await ground.resize("a", 3)
    await until_each(ground, "imported as", 3)
    await ground.resize("a", 1)
    await until_each(ground, "begun as", 1, times=2)
    await ground.resize("a", 3)
    await ground.resize("a", 2)
    await until_each(ground, "step of", 2)
    assert failures(ground) == []


async def test_agent_when_it_fails_unnoticed_by_others_has_all_start_anew_and_counts_once(
    ground: Ground, tmp_path: Path
) -> None:
    script = """
failed = here / "failed"
if not failed.exists():
    if rank == 1:
        failed.touch()
        sys.exit(3)
    # As in a collective of NCCL, which waits ten minutes for a peer that is gone.
    time.sleep(600)
dist.barrier()
"""
    await ground.start(a_training(tmp_path, script, policy={"backoff_limit": 1}), workers=2)
    await ground.try_again(2)
    await ground.until_told(JobCompleted(job_id="a"))
    assert failures(ground) == ["worker-1"]
    await until_each(ground, "step of", 2, times=2)


async def test_agent_when_its_work_is_done_and_a_peer_is_killed_holds_nothing_after_its_grace(
    ground: Ground, tmp_path: Path
) -> None:
    # The agent of rank 0 waits for that of rank 1: for 300 s, and heeds no SIGTERM meanwhile.
    script = """
if rank == 1:
    (here / "ready").write_text(str(os.getppid()))
    time.sleep(600)
while not (here / "ready").exists():
    time.sleep(0.05)
(here / "done").write_text(str(os.getpid()))
os._exit(0)
"""
    await ground.start(a_training(tmp_path, script, grace_s=2.0), workers=2)
    job = ground.folder / "a"
    await until(lambda: (job / "done").exists() and not is_alive(int((job / "done").read_text() or os.getpid())))
    os.kill(int((job / "ready").read_text()), signal.SIGKILL)
    await ground.until_workers()
    assert failures(ground) == ["worker-1"]
