"""The processes of a job, by the mark in their environment: found in a thread, killed in a turn of the event loop.

Rule: a process that is killed is the one that was found, not one that got its id since. What has ended meanwhile counts
as found: it may have left others behind.
"""

import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from voda.process_table import REPLICA_MARK, marked_processes, open_process, send_signal, start_of, variable

_DEVICES_BYTES: Final = 16 << 10
"""Of the names of a process's devices that are looked at; more than a machine has."""

ENDED: Final = -1


class MarkedProcess(NamedTuple):
    pid: int
    start: int
    """Ticks since boot; ENDED: it ended while it was looked at."""
    replica: str
    """That the mark names."""
    gpus: frozenset[str]
    """That CUDA_VISIBLE_DEVICES names."""


def find_marked(replicas: Path, uid: int) -> tuple[MarkedProcess, ...]:
    """Return the processes of a user, and of root, whose mark is a replica in this folder.

    It looks at all of the user's processes, which takes a while: not on the event loop.
    """
    found = []
    for pid, environment in marked_processes(replicas, uid=uid):
        start = start_of(pid)
        place = os.fsdecode(variable(environment, REPLICA_MARK)).removeprefix(f"{replicas}/")
        gpus = variable(environment, "CUDA_VISIBLE_DEVICES")[:_DEVICES_BYTES].split(b",")
        found.append(MarkedProcess(pid, ENDED if start is None else start, place, frozenset(map(os.fsdecode, gpus))))
    return tuple(found)


def kill_found(found: Iterable[MarkedProcess], replica: str = "") -> Sequence[int]:
    """Kill the processes of one replica or all, and return their ids, without those that we may not kill."""
    killed = []
    for process in found:
        if replica not in ("", process.replica):
            continue
        if (pidfd := open_process(process.pid, process.start)) is not None:
            try:
                send_signal(pidfd, signal.SIGKILL)
            except PermissionError:
                continue
            finally:
                os.close(pidfd)
        killed.append(process.pid)
    return killed
