"""Torch agents under real torchrun: they begin and end together, whatever is resized and whichever of them fails."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.local_jobs import Ground, a_ground, a_torch_job, base_environment
from tests.needs import TORCH_VENV, needs_torch_venv
from tests.waiting import until
from voda.cluster.local.run_spec import RunSpec
from voda.events.types import JobCompleted, ProgramFailed

pytestmark = [pytest.mark.slow, needs_torch_venv()]

BEGIN = """
import os, pathlib, signal, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.ones(1)
dist.all_reduce(x)
print(f"[rank {rank} of {size} on {os.environ['VODA_POD_NAME']}]", flush=True)
here = pathlib.Path(os.environ["VODA_JOB_DIR"])
"""
TRAIN = """
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
    """Return a PyTorchJob, each of whose workers runs a script by torchrun."""
    path = tmp_path / "train.py"
    path.write_text(BEGIN + script)
    return a_torch_job("a", "", argv=("torchrun", str(path)), **fields)


async def until_ranks(ground: Ground, size: int, *, times: int = 1) -> None:
    """Wait until the ranks of a size have met, for the n-th time, each on the worker of its index."""
    for index in range(size):
        line = f"[rank {index} of {size} on a-worker-{index}]"
        await until(lambda: ground.log("a", f"worker-{index}").count(line) >= times, within_s=90.0)


async def test_agents_when_resized_meet_at_each_size_in_order_and_none_fails(ground: Ground, tmp_path: Path) -> None:
    await ground.start(a_training(tmp_path, TRAIN))
    await until_ranks(ground, 1)
    seen, laps = {1: 1}, []
    for size in (2, 3, 2, 3, 1, 4):
        asked_at = time.monotonic()
        await ground.resize("a", size)
        seen[size] = seen.get(size, 0) + 1
        await until_ranks(ground, size, times=seen[size])
        laps.append(f"{size}: {time.monotonic() - asked_at:.1f} s")
    print(laps)
    assert not [each for each in ground.notices() if isinstance(each, ProgramFailed)]
    assert ground.cluster.jobs["a"].record.failures == 0
