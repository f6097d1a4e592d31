"""Whole simulations: a measured workload in a second, and the whole Philly trace in two minutes.

Each runs in a process of its own, so that the peak memory is that of the run alone.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.table import Row
from voda.domain.errors import DataNotFound
from voda.simulator.data import PHILLY, POLLUX, DataSet, find_folder

TITLE = "Simulate a workload under one policy (elastic-fifo, steady)"
_PEER_S = 34.0
"""The peer's simulator on pollux/workload-6, by the figures of the specification it is described in."""


def run() -> Sequence[Row]:
    """Return the figures of the workloads whose data are on this machine."""
    rows: list[Row] = []
    if _is_here(POLLUX):
        wall_s, _ = _simulated("pollux/workload-6")
        rows.append(
            Row(
                what="pollux/workload-6, 160 jobs",
                figure=wall_s,
                unit="s",
                goal=1.0,
                yardstick="the peer's simulator, about 34 s",
                ratio=wall_s / _PEER_S,
            )
        )
    if _is_here(PHILLY):
        wall_s, peak_gib = _simulated("philly")
        rows.append(Row(what="philly, 82,247 jobs", figure=wall_s, unit="s", goal=120.0))
        rows.append(Row(what="philly, peak memory", figure=peak_gib, unit="GiB", goal=1.0))
    return rows


def _is_here(data_set: DataSet) -> bool:
    try:
        find_folder(data_set)
    except DataNotFound as error:
        print(error, file=sys.stderr)
        return False
    return True


def _simulated(workload: str) -> tuple[float, float]:
    """Return (seconds of the run, peak memory of its process in GiB)."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_simulate", workload], check=True, capture_output=True, timeout=900
    )
    wall_s, peak_gib = json.loads(done.stdout)
    return wall_s, peak_gib


def _main(workload: str) -> None:
    import asyncio

    from voda.simulator.engine import Simulation, SimulationOptions
    from voda.simulator.workloads.catalogue import load_workload

    outcome = asyncio.run(Simulation(load_workload(workload), SimulationOptions()).run())
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps([outcome.wall_s, peak_gib]))


if __name__ == "__main__":
    _main(sys.argv[1])
