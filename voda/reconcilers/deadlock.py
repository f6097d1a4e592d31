"""Deadlocks among migrations: jobs that wait in a cycle, each for GPUs that the next one has to free.

Rule: pure; it halts a job only where nothing else opens the cycle, and then the job that loses least.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mover:
    """A job that waits for free GPUs before it moves."""

    job_id: str
    needs: Mapping[str, int]
    """node -> GPUs that must be free there."""
    leaves: Mapping[str, int]
    """node -> GPUs it frees there by moving."""
    halt_cost: float
    """What a halt loses, GPU-seconds; compared only."""


def jobs_to_halt(movers: Sequence[Mover], free: Mapping[str, int]) -> tuple[str, ...]:
    """Return the cheapest job of each cycle of waiting jobs, ties by id.

    A job that waits for something else is never among them. `free` is node -> GPUs free once all present actions are
    done.
    """
    free_gpus = defaultdict(int, free)
    waiting = {mover.job_id: mover for mover in sorted(movers, key=lambda mover: mover.job_id)}
    halted: list[str] = []
    while True:
        _move_those_that_fit(waiting, free_gpus)
        cycle = _cycle(waiting, free_gpus)
        if not cycle:
            return tuple(halted)
        victim = min(cycle, key=lambda mover: (mover.halt_cost, mover.job_id))
        halted.append(victim.job_id)
        _release(waiting.pop(victim.job_id), free_gpus)


def _move_those_that_fit(waiting: dict[str, Mover], free_gpus: dict[str, int]) -> None:
    """Move every job that fits, until none does."""
    has_moved = True
    while has_moved:
        has_moved = False
        for mover in list(waiting.values()):
            if all(free_gpus[node] >= gpus for node, gpus in mover.needs.items()):
                for node, gpus in mover.needs.items():
                    free_gpus[node] -= gpus
                _release(waiting.pop(mover.job_id), free_gpus)
                has_moved = True


def _release(mover: Mover, free_gpus: dict[str, int]) -> None:
    for node, gpus in mover.leaves.items():
        free_gpus[node] += gpus


def _cycle(waiting: Mapping[str, Mover], free_gpus: Mapping[str, int]) -> Sequence[Mover]:
    """Return jobs of which each waits for the next, and the last for the first; empty if there are none."""
    leaving = defaultdict(list)
    for mover in waiting.values():
        for node in mover.leaves:
            leaving[node].append(mover.job_id)
    waits_for = {
        mover.job_id: {other for node, gpus in mover.needs.items() if free_gpus[node] < gpus for other in leaving[node]}
        for mover in waiting.values()
    }
    _drop_jobs_outside_cycles(waits_for)
    path: dict[str, None] = {}
    job_id = min(waits_for, default=None)
    while job_id is not None and job_id not in path:
        path[job_id] = None
        job_id = min(waits_for[job_id])
    members = list(path)
    return [waiting[member] for member in members[members.index(job_id) :]] if job_id is not None else []


def _drop_jobs_outside_cycles(waits_for: dict[str, set[str]]) -> None:
    """Drop jobs that wait for no other job, until none is left: halting another one would not help them."""
    while ends := {job_id for job_id, others in waits_for.items() if not others}:
        for job_id in ends:
            del waits_for[job_id]
        for others in waits_for.values():
            others -= ends
