"""Deadlocks among migrations: jobs that wait, in a circle, for the GPUs that the next one is to leave.

Rule: pure; only a job of a circle that nothing else can open is halted, the one that loses least by it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mover:
    """A job that waits for room before it moves."""

    job_id: str
    needs: Mapping[str, int]
    """node -> GPUs it must have free there."""
    leaves: Mapping[str, int]
    """node -> GPUs it frees there by moving."""
    halt_cost: float
    """What a halt loses, GPU-seconds; compared only."""


def to_halt(movers: Sequence[Mover], free: Mapping[str, int]) -> tuple[str, ...]:
    """Return the jobs to halt so that no circle of waiting jobs is left.

    Args:
        movers: all jobs that wait to move.
        free: node -> GPUs free once everything under way is done.

    Returns:
        One job of each circle, the cheapest; ties by id. Jobs that wait for something else are left alone.
    """
    room = defaultdict(int, free)
    waiting = {mover.job_id: mover for mover in sorted(movers, key=lambda mover: mover.job_id)}
    halted: list[str] = []
    while True:
        _let_go(waiting, room)
        circle = _circle(waiting, room)
        if not circle:
            return tuple(halted)
        victim = min(circle, key=lambda mover: (mover.halt_cost, mover.job_id))
        halted.append(victim.job_id)
        _leave(waiting.pop(victim.job_id), room)


def _let_go(waiting: dict[str, Mover], room: dict[str, int]) -> None:
    """Let every mover go that finds room, until none does."""
    went = True
    while went:
        went = False
        for mover in list(waiting.values()):
            if all(room[node] >= gpus for node, gpus in mover.needs.items()):
                for node, gpus in mover.needs.items():
                    room[node] -= gpus
                _leave(waiting.pop(mover.job_id), room)
                went = True


def _leave(mover: Mover, room: dict[str, int]) -> None:
    for node, gpus in mover.leaves.items():
        room[node] += gpus


def _circle(waiting: Mapping[str, Mover], room: Mapping[str, int]) -> Sequence[Mover]:
    """Return movers of which each waits for the next, and the last for the first; empty if there are none."""
    leaving = defaultdict(list)
    for mover in waiting.values():
        for node in mover.leaves:
            leaving[node].append(mover.job_id)
    waits_for = {
        mover.job_id: {other for node, gpus in mover.needs.items() if room[node] < gpus for other in leaving[node]}
        for mover in waiting.values()
    }
    _drop_dead_ends(waits_for)
    path: dict[str, None] = {}
    job_id = min(waits_for, default=None)
    while job_id is not None and job_id not in path:
        path[job_id] = None
        job_id = min(waits_for[job_id])
    walked = list(path)
    return [waiting[member] for member in walked[walked.index(job_id) :]] if job_id is not None else []


def _drop_dead_ends(waits_for: dict[str, set[str]]) -> None:
    """Drop, again and again, who waits for nobody: no halt of another job would help it."""
    while ends := {job_id for job_id, others in waits_for.items() if not others}:
        for job_id in ends:
            del waits_for[job_id]
        for others in waits_for.values():
            others -= ends
