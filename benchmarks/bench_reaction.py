"""How soon the machine follows: from a submit to the process, and from a plan to the workers at their new size."""

import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.served import Served, manifest, serving
from benchmarks.table import Row

TITLE = "voda up, from decision to process"
_STARTS = 60
_RESIZES = 12
_WAIT_S = 120.0
_RANK = """
import os, signal, sys, time
from pathlib import Path
from mpi4py import MPI

comm = MPI.COMM_WORLD
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
comm.Barrier()
if comm.rank == 0:
    with open(Path(os.environ["VODA_JOB_DIR"]) / "sizes", "a") as file:
        file.write(f"{time.time()} {comm.size}\\n")
while True:
    time.sleep(0.1)
"""


def run() -> Sequence[Row]:
    """Return both delays, p95."""
    with serving("--slots", "4", "--ratelimit", "0") as served:
        starts = [_start(served, number) for number in range(_STARTS)]
    with serving("--slots", "4", "--ratelimit", "0") as served:
        resizes = _resizes(served)
    return [
        Row(what="submit to worker process, p95", figure=_p95(starts) * 1e3, unit="ms", goal=150),
        Row(what="the same, p50", figure=float(np.median(starts)) * 1e3, unit="ms"),
        Row(what="plan to mpirun's ranks at the new size, p95", figure=_p95(resizes), unit="s", goal=3.0),
        Row(what="the same, p50", figure=float(np.median(resizes)), unit="s"),
    ]


def _start(served: Served, number: int) -> float:
    """Return the seconds from the submit to the first thing that the job's program does."""
    begun = time.time()  # noqa: TID251 - compared with what another process writes
    served.ask("POST", "/api/v1/jobs", manifest(f"start-{number}", "date +%s.%N > $VODA_JOB_DIR/began"))
    began = served.home / "jobs" / f"start-{number}" / "began"
    until(lambda: began.exists() and began.read_text().endswith("\n"), f"job start-{number} to start")
    until(lambda: served.get(f"/api/v1/jobs/start-{number}")["phase"] == "Completed", f"job start-{number} to end")
    return float(began.read_text()) - begun


def _resizes(served: Served) -> Sequence[float]:
    """Change a job's bounds again and again; return the seconds from each plan to the ranks that came of it."""
    program = served.home / "rank.py"
    program.write_text(_RANK)
    script = (
        f"exec voda run --max-np 4 --host-discovery-script /etc/mpi/discover_hosts.sh -- {sys.executable} {program}"
    )
    body = manifest("sizes", script, least=1, most=1)
    container = body["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    # Kubernetes-like paths are replaced in command and args; a shell script is an argument like any other.
    container["command"] = ["/bin/sh", "-c", script]
    served.ask("POST", "/api/v1/jobs", body)
    sizes = served.home / "jobs" / "sizes" / "sizes"
    until(lambda: _lines(sizes) == 1, "the job to start")
    for number in range(_RESIZES):
        size = 1 + (number + 1) % 3
        served.ask(
            "PATCH", "/api/v1/jobs/sizes", {"min_replicas": size, "max_replicas": size, "requested_replicas": size}
        )
        until(partial(has_lines, sizes, number + 2), f"the job to run on {size}")
    return [delay for delay, *_ in delays(served, sizes)]


def delays(served: Served, sizes: Path) -> Sequence[tuple[float, int, int]]:
    """Return, for each plan of another size, the seconds to the first line of that size, the size before, and it."""
    ran = [(float(at), int(size)) for at, size in (line.split() for line in sizes.read_text().splitlines())]
    with sqlite3.connect(served.home / "voda.db") as log:
        rows = log.execute("SELECT recorded_at, body FROM events WHERE type = 'plan.adopted' ORDER BY position")
        planned = [
            (float(at), len(placed["sizes"]))
            for at, body in rows
            if "sizes" in (placed := msgspec.json.decode(body)["data"].get("placed", {}))
        ]
    return [
        (next(at for at, size in ran if at > decided_at and size == wanted) - decided_at, before, wanted)
        for (_, before), (decided_at, wanted) in pairwise(planned)
    ]


def has_lines(path: Path, count: int) -> bool:
    """Say whether a file has that many lines, or more."""
    return _lines(path) >= count


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    deadline = time.perf_counter() + _WAIT_S
    while not is_so():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"waited {_WAIT_S:.0f} s for {what}")
        time.sleep(0.005)


def _p95(laps: Sequence[float]) -> float:
    return float(np.percentile(laps, 95))
