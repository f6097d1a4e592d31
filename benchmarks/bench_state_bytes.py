"""How much memory jobs that report much leave behind in a voda, before and after a restart, and what a snapshot blocks.

60 jobs write 1,000 reports of 20 kB each and end. One process follows the log as they come; the next one folds the
same log from its beginning, and takes a snapshot. Another one follows 200 live jobs that write 1,000 usual reports, and
takes one. The yardstick is a process that has imported the service.
"""

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.table import Row

TITLE = "Memory after 60 jobs of 1,000 reports of 20 kB"
_JOBS, _LIVE_JOBS, _REPORTS = 60, 200, 1_000
_MEMORY_MB, _PEAK_MB = 280.0, 400.0
_BLOCKED_S = 0.05


def run() -> Sequence[Row]:
    """Return resident memory, its peak after a restart, and the longest step of the event loop during a snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "log.db")
        (empty_mb, _, _), before, after = (_in_a_process(verb, log) for verb in ("empty", "follow", "restart"))
        live = _in_a_process("live", str(Path(folder) / "live.db"))
    return [
        _memory("resident once they have ended", before[0], _MEMORY_MB, empty_mb),
        _memory("resident after a restart", after[0], _MEMORY_MB, empty_mb),
        _memory("peak of the restart", after[1], _PEAK_MB, empty_mb),
        _blocked("longest CPU time of the loop during a snapshot", after[2]),
        _blocked(f"the same of {_LIVE_JOBS} live jobs with {_LIVE_JOBS * _REPORTS:,} reports", live[2]),
    ]


def _memory(what: str, figure: float, goal: float, empty_mb: float) -> Row:
    return Row(what=what, figure=figure, unit="MB", goal=goal, yardstick="an idle process", ratio=figure / empty_mb)


def _blocked(what: str, longest_s: float) -> Row:
    return Row(what=what, figure=longest_s, unit="s", goal=_BLOCKED_S)


def _in_a_process(verb: str, log: str) -> Sequence[float]:
    command = [sys.executable, "-m", "benchmarks.bench_state_bytes", verb, log]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1_800).stdout
    return [float(word) for word in out.split()]


async def _work(verb: str, log: str) -> tuple[float, float]:
    """Do one process's part; return its resident MB and the longest step of the event loop during its snapshot, s."""
    import voda.app.service  # noqa: F401 - what a running voda has loaded
    from voda.app.runtime import Snapshots
    from voda.application.read_model import ReadModel
    from voda.log.factory import open_store

    if verb == "empty":
        return _resident_mb(), 0.0
    store = await open_store(log)
    view = ReadModel(store)
    await view.open()
    following = asyncio.create_task(view.run())
    longest_s = 0.0
    if verb == "follow":
        await _append(store, view, _JOBS, {f"{number:03}".ljust(198, "m"): 0.123456789 for number in range(100)})
    elif verb == "live":
        await _append(store, view, _LIVE_JOBS, {"loss": 0.123456789, "lr": 0.1}, is_live=True)
    if verb != "follow":
        longest_s = await _longest_step_s(asyncio.create_task(Snapshots(store, view).take()))
    resident_mb = _resident_mb()
    following.cancel()
    await store.close()
    return resident_mb, longest_s


async def _append(store, view, jobs, metrics, *, is_live=False) -> None:  # type: ignore[no-untyped-def]  # of this process's imports
    from voda.domain.job import JobSpec
    from voda.events.envelope import ANY_VERSION, Fact
    from voda.events.types import AnyFact, JobCompleted, JobProgressed, JobSubmitted

    for job in range(jobs):
        job_id = f"job-{job}"
        facts: list[AnyFact] = [
            JobSubmitted(spec=JobSpec(job_id=job_id, user="bob")),
            *(JobProgressed(job_id=job_id, epochs_done=n, workers=1, metrics=metrics) for n in range(_REPORTS)),
            *(() if is_live else (JobCompleted(job_id=job_id),)),
        ]
        for first in range(0, len(facts), 50):
            made = [
                Fact(data=fact, event_id=f"{job_id}-{first + at}", recorded_at=float(job))
                for at, fact in enumerate(facts[first : first + 50])
            ]
            await view.wait_for(await store.append(facts[0].stream, ANY_VERSION, made), timeout_s=60)


async def _longest_step_s(until: "asyncio.Task[None]") -> float:
    longest_s, before_s = 0.0, time.thread_time()
    while not until.done():
        await asyncio.sleep(0)
        now_s = time.thread_time()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    await until
    return longest_s


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096 / 1e6


def main(verb: str, log: str) -> None:
    """Print resident MB, peak MB and the longest step of one process."""
    resident_mb, longest_s = asyncio.run(_work(verb, log))
    print(resident_mb, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, longest_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
