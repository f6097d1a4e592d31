"""A daemon of NVIDIA's MPS of our own, in a folder of our own, that changes no setting of a GPU."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from voda import config

_CONTROL: Final = "nvidia-cuda-mps-control"
_PLACES: Final = ("/usr/bin", "/usr/local/nvidia/bin", "/opt/nvidia/bin")
_ANSWER_S: Final = 30.0


def mps_control() -> str:
    """Return the path of the daemon's program; empty: there is none."""
    return shutil.which(_CONTROL, path=os.pathsep.join((config.environment().get("PATH", ""), *_PLACES))) or ""


@contextmanager
def mps_daemon(folder: Path) -> Iterator[Path]:
    """Yield the folder of the pipes of a daemon that runs; it ends with all that it started."""
    pipes, logs = folder / "pipes", folder / "logs"
    for each in (pipes, logs):
        each.mkdir(parents=True)
    environment = {**config.environment(), "CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
    _say("", environment, "-d")
    server = _pid(pipes)
    try:
        yield pipes
    finally:
        _say("quit -t 5", environment)
        _until_gone(server)


def _say(text: str, environment: dict[str, str], *arguments: str) -> None:
    command = [mps_control(), *arguments]
    subprocess.run(command, env=environment, input=text.encode(), timeout=_ANSWER_S, check=True)


def _pid(pipes: Path) -> int:
    with suppress(OSError, ValueError):
        return int((pipes / f"{_CONTROL}.pid").read_text())
    return 0


def _until_gone(pid: int) -> None:
    end = time.perf_counter() + _ANSWER_S
    while pid and Path(f"/proc/{pid}").exists() and time.perf_counter() < end:
        time.sleep(0.05)
