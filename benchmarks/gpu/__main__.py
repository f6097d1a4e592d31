"""`python -m benchmarks.gpu`: what jobs that share this machine's first GPU compute, with NVIDIA's MPS and without.

Each row is one bfloat16 product of large matrices after the other, by one to four jobs of a `voda up` at once; the
yardstick is the same program with the whole GPU, in the same run.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.gpu import PROGRAM
from benchmarks.gpu.mps import mps_control, mps_daemon
from benchmarks.served import Served, start
from benchmarks.table import Row, show
from voda.cli.program import ProgramOptions, program_document
from voda.cluster.local.devices import open_driver

SECONDS: Final = 5.0
WITHIN_S: Final = 120.0
TITLE: Final = "jobs that share one GPU"


def main() -> None:
    """Measure and show."""
    if not open_driver()():
        sys.exit("this machine has no NVIDIA GPU whose driver answers")
    with tempfile.TemporaryDirectory() as folder:
        show(measured(Path(folder)), TITLE)


def measured(folder: Path) -> Sequence[Row]:
    """Return what jobs computed beside each other."""
    rows = []
    with ExitStack() as stack:
        pipes = stack.enter_context(mps_daemon(folder / "mps")) if mps_control() else None
        served = stack.enter_context(_up(folder / "mps-home", pipes))
        (whole,) = _tflops(served, folder / "whole", [None])
        rows.append(Row(what="a job with the whole GPU", figure=whole, unit="TFLOP/s"))
        for parts in ((500,), (250,), (500, 500), (250, 250, 250, 250), (750, 250)) if pipes else ():
            rows.append(_row("MPS", parts, _tflops(served, folder / f"mps-{parts}", parts), whole))
    with _up(folder / "plain-home", None) as served:
        for parts in ((500, 500), (250, 250, 250, 250)):
            rows.append(_row("no MPS", parts, _tflops(served, folder / f"plain-{parts}", parts), whole))
    return rows


@contextmanager
def _up(home: Path, pipes: Path | None) -> Iterator[Served]:
    home.mkdir()
    options = ("--port", "0", "--ratelimit", "0", "--gpu-sharing", "auto" if pipes else "plain")
    served = start(home, *options, variables={"CUDA_MPS_PIPE_DIRECTORY": str(pipes or home / "none")})
    try:
        yield served
    finally:
        served.stop()


def _tflops(served: Served, folder: Path, parts: Sequence[int | None]) -> Sequence[float]:
    """Return what jobs with these parts of the GPU (thousandths; None: all of it) compute at the same time, each."""
    folder.mkdir()
    files = [folder / f"{index}" for index in range(len(parts))]
    for file, milli in zip(files, parts, strict=True):
        argv = [sys.executable, str(PROGRAM), "compute", str(file), str(folder / "start"), f"{SECONDS:g}"]
        options = ProgramOptions(launcher="plain", gpu_milli=str(milli or ""))
        name = f"{folder.name}-{file.name}".lower().translate(str.maketrans("(), ", "----")).replace("--", "-")
        served.ask("POST", "/api/v1/jobs", dict(program_document(argv, options, name=name).document.manifest))
    for file in files:
        _written(file, "is_ready")
    (folder / "start").touch()
    return [float(_written(file, "tflops")) for file in files]


def _written(file: Path, key: str) -> float:
    end = time.perf_counter() + WITHIN_S
    while time.perf_counter() < end:
        said: Mapping[str, float] = json.loads(file.read_text()) if file.exists() else {}
        if key in said:
            return said[key]
        time.sleep(0.02)
    raise TimeoutError(f"waited {WITHIN_S:g} s in vain for {key} in {file}")


def _row(how: str, parts: Sequence[int], each: Sequence[float], whole: float) -> Row:
    said = " + ".join(f"{milli}" for milli in parts)
    ratios = " + ".join(f"{figure / whole:.2f}" for figure in each)
    total = sum(each)
    yardstick = f"the whole GPU; each: {ratios}"
    return Row(what=f"{how}: {said} milli", figure=total, unit="TFLOP/s", ratio=total / whole, yardstick=yardstick)


if __name__ == "__main__":
    main()
