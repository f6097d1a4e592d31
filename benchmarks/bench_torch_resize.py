"""How soon a torchrun job of one machine trains at its new size, from the plan to the first step.

The yardstick is a start of the same program by torchrun alone: what it takes to import torch, twice, and to meet.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_reaction import delays, has_lines, until
from benchmarks.served import Served, environment, serving
from benchmarks.table import Row

TITLE = "voda up, torchrun: from plan to the first step at the new size"
_ROUNDS = 3
_VENV = Path(__file__).parents[1] / ".venv-torch" / "bin"
_PROGRAM = """
import os, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
if dist.get_rank() == 0:
    with open(os.path.join(os.environ["VODA_JOB_DIR"], "sizes"), "a") as file:
        file.write(f"{time.time()} {dist.get_world_size()}\\n")
while True:
    dist.all_reduce(one)
    time.sleep(0.1)
"""


def run() -> Sequence[Row]:
    """Return the delays of growing by one worker, and of shrinking by two."""
    torchrun = shutil.which("torchrun", path=f"{_VENV}{os.pathsep}{environment(Path())['PATH']}")
    if torchrun is None:
        raise RuntimeError("needs PyTorch: python3 tools/bootstrap.py --torch")
    with serving("--slots", "3", "--ratelimit", "0") as served:
        program = served.home / "train.py"
        program.write_text(_PROGRAM)
        alone = [_start_alone(torchrun, program, served.home / f"alone-{number}") for number in range(_ROUNDS)]
        found = _resizes(served, torchrun, program)
    yardstick = float(np.median(alone))
    grows = [delay for delay, before, size in found if size > before]
    shrinks = [delay for delay, before, size in found if size < before]
    return [
        Row(what="torchrun alone, start to first step, median", figure=yardstick, unit="s"),
        *_rows("grow", grows, yardstick, goal=4.0),
        *_rows("shrink", shrinks, yardstick, goal=5.0),
    ]


def _rows(what: str, laps: Sequence[float], yardstick: float, *, goal: float) -> Sequence[Row]:
    middle, most = float(np.median(laps)), max(laps)
    against = partial(Row, unit="s", yardstick="torchrun alone")
    return [
        against(what=f"{what}, median of {len(laps)}", figure=middle, goal=goal, ratio=middle / yardstick),
        against(what=f"{what}, the longest", figure=most, ratio=most / yardstick),
    ]


def _start_alone(torchrun: str, program: Path, folder: Path) -> float:
    """Return the seconds from the start of one agent without voda to its program's first step."""
    folder.mkdir()
    env = {**environment(folder), "VODA_JOB_DIR": str(folder)}
    begun = time.time()  # noqa: TID251 - compared with what another process writes
    process = subprocess.Popen([torchrun, "--standalone", str(program)], env=env, stderr=subprocess.DEVNULL)
    try:
        until(partial(has_lines, folder / "sizes", 1), "torchrun alone")
    finally:
        process.terminate()
        process.wait(timeout=60)
    return float((folder / "sizes").read_text().split()[0]) - begun


def _resizes(served: Served, torchrun: str, program: Path) -> Sequence[tuple[float, int, int]]:
    """Resize a job to 1, 2, 3 workers, again and again."""
    served.ask("POST", "/api/v1/jobs", _manifest(torchrun, program))
    sizes = served.home / "jobs" / "sizes" / "sizes"
    until(partial(has_lines, sizes, 1), "the job to start")
    for number in range(3 * _ROUNDS):
        size = 1 + (number + 1) % 3
        wanted = dict.fromkeys(("min_replicas", "max_replicas", "requested_replicas"), size)
        served.ask("PATCH", "/api/v1/jobs/sizes", wanted)
        until(partial(has_lines, sizes, number + 2), f"the job to train on {size}")
    return delays(served, sizes)


def _manifest(torchrun: str, program: Path) -> Mapping[str, Any]:
    container = {"name": "pytorch", "image": "none", "command": [torchrun, str(program)]}
    worker = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "sizes"},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }
