"""How much memory the index of all jobs takes, against plain Python containers that answer the same questions."""

import subprocess
import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from benchmarks.table import Row
from voda.projections.jobs.registry import SubmissionIndex

TITLE = "Memory of the index of all jobs"
_JOBS = 1_000_000
_LEAST_SAVED_MB = 150.0
"""Below that a plain mapping would do."""


def run() -> Sequence[Row]:
    """Return the memory of both, each measured in a process of its own."""
    index_mb, plain_mb = (_in_a_process(name) for name in ("index", "plain"))
    return [
        Row(what=f"SubmissionIndex of {_JOBS:,} jobs", figure=index_mb, unit="MB"),
        Row(
            what="a dict and a set cost more by",
            figure=plain_mb - index_mb,
            unit="MB",
            goal=_LEAST_SAVED_MB,
            better="higher",
            yardstick="SubmissionIndex",
            ratio=plain_mb / index_mb,
        ),
    ]


def _in_a_process(name: str) -> float:
    command = [sys.executable, "-m", "benchmarks.bench_job_index", name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096 / 1e6


def _fill_index() -> object:
    index = SubmissionIndex()
    for number in range(_JOBS):
        index.add(f"digits-train-{number}", f"{number:032x}")
    return index


def _fill_plain() -> object:
    job_of_event: dict[int, str] = {}
    for number in range(_JOBS):
        digest = blake2b(f"{number:032x}".encode(), digest_size=8).digest()
        job_of_event[int.from_bytes(digest)] = f"digits-train-{number}"
    return job_of_event, set(job_of_event.values())


def main(name: str) -> None:
    """Fill one of them, and print the megabytes that it took."""
    before_mb = _resident_mb()
    filled = {"index": _fill_index, "plain": _fill_plain}[name]()
    print(_resident_mb() - before_mb)
    del filled


if __name__ == "__main__":
    main(sys.argv[1])
