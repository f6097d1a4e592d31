"""AFS-L: one replica at a time to the job of top priority, which weighs the time left against the gain.

Hwang et al., NSDI 2021, Algorithm 1. Of two jobs without GPUs the shorter one wins. Otherwise the longer one, each
at its own share, wins if its gain relative to the size it would have exceeds the shorter one's gain relative to
the size it has. (The ancestor measures both lengths at one job's share.) A job without GPUs steps to its minimum
at once, others to their next size, whose gain counts by the replica; a step that does not fit is set aside for good.
Every GPU that makes a next size is handed out, also where it gains nothing.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from voda.domain.job import JobSpec
from voda.domain.plan import Allocation
from voda.domain.reasons.policies import ByGain, PolicyCause
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import Shares, explained
from voda.policies.toolkit.estimates import remaining_s, speedup
from voda.policies.toolkit.order import by_submission


class AfsL:
    name: ClassVar[str] = "afs-l"
    title: ClassVar[str] = "Replica by replica, weighing time left against gain"
    paper: ClassVar[str] = "Hwang et al., Elastic Resource Sharing for Distributed Deep Learning, NSDI 2021"

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        jobs = by_submission(view)
        specs = [job.spec for job in jobs]
        curves = [speedup(view, job) for job in jobs]
        tournament = Tournament([remaining_s(view, job) for job in jobs])
        counts = [0] * len(jobs)
        free = view.capacity_gpus
        while free and (top := tournament.champion()) is not None:
            spec, count, curve = specs[top], counts[top], curves[top]
            size = spec.size_above(count)
            if (charge := (size - count) * spec.gpus_per_replica) > free:
                tournament.drop(top)
                continue
            free -= charge
            counts[top] = size
            if further := spec.size_above(size):
                tournament.raise_share(top, curve[size], curve[further], further - size)
            else:
                tournament.drop(top)
        shares = Shares(free, {spec.job_id: count for spec, count in zip(specs, counts, strict=True)})
        left_s = {
            spec.job_id: remaining_s(view, job) / curve[count] if count and curve[count] > 0 else math.inf
            for job, spec, count, curve in zip(jobs, specs, counts, curves, strict=True)
        }
        return explained(view, shares, why=lambda spec: _why(spec, left_s))


def _why(spec: JobSpec, left_s: dict[str, float]) -> PolicyCause:
    left = left_s[spec.job_id]
    return ByGain() if left == math.inf else ByGain(left_s=round(left))


class Tournament:
    """Whose turn it is: the jobs in the line, by their places 0, 1, 2, ...; at first without any share.

    The priority is no order: a may beat b, b beat c, and c beat a. The top job is by definition the one left when a
    champion is challenged by one job after the other, earlier ones first. Rule: the answer is that of the plain scan.

    Only the champion changes between two scans, so all that was decided before its place in the line still holds: the
    former champions wait on a stack, and the scan goes on from the last champion's place. Each scan takes one champion
    off the stack, so that all scans together put on hardly more champions than there are replicas handed out.
    """

    def __init__(self, remaining_s: Sequence[float]) -> None:
        jobs = len(remaining_s)
        self._remaining_s = list(remaining_s)
        self._has_share = [False] * jobs
        # What decides, for every job still in the race. Those out of it hold values that never win.
        self._waiting_s = np.array(remaining_s, dtype=float)
        self._length_s = np.full(jobs, math.inf)
        self._gain_if_longer = np.ones(jobs)
        self._gain_if_shorter = np.full(jobs, math.inf)
        self._in_race = np.ones(jobs, dtype=bool)
        self._champions: list[int] = []
        self._next = 0

    def champion(self) -> int | None:
        """Return the place of the top job, or None when all are out of the race."""
        champions = self._champions
        while (winner := self._first_to_win()) is not None:
            champions.append(winner)
            self._next = winner + 1
        return champions[-1] if champions else None

    def raise_share(self, place: int, speedup: float, next_speedup: float, step: int = 1) -> None:
        """Give the champion a step: its speedup T(n) is this, and T(n + step) would be that."""
        gain = (next_speedup - speedup) / step
        self._set(
            place,
            length_s=self._remaining_s[place] / speedup if speedup > 0 else math.inf,
            gain_if_longer=gain / next_speedup if next_speedup > 0 else 1.0,
            gain_if_shorter=gain / speedup if speedup > 0 else math.inf,
        )

    def drop(self, place: int) -> None:
        """Take the champion out of the race."""
        self._in_race[place] = False
        self._set(place, length_s=math.inf, gain_if_longer=-math.inf, gain_if_shorter=-math.inf)

    def _set(self, place: int, *, length_s: float, gain_if_longer: float, gain_if_shorter: float) -> None:
        assert self._champions[-1] == place, f"only the champion changes: {self._champions[-1]}, got {place}"
        self._has_share[place] = True
        self._waiting_s[place] = math.inf
        self._length_s[place] = length_s
        self._gain_if_longer[place] = gain_if_longer
        self._gain_if_shorter[place] = gain_if_shorter
        self._champions.pop()
        self._next = place

    def _first_to_win(self) -> int | None:
        """Return the first job from the place of the scan on that beats the present champion."""
        line = slice(self._next, None)
        length_s, shorter = self._length_s[line], self._gain_if_shorter[line]
        if not length_s.size:
            return None
        if not self._champions:
            wins = self._in_race[line]
        elif self._has_share[champion := self._champions[-1]]:
            is_shorter = length_s < self._length_s[champion]
            wins = np.where(
                is_shorter,
                shorter >= self._gain_if_longer[champion],
                self._gain_if_longer[line] > self._gain_if_shorter[champion],
            )
        else:
            # Its length is infinite and its gain, were it the longer one, 1.
            wins = self._waiting_s[line] < self._waiting_s[champion]
            wins |= (length_s < math.inf) & (shorter >= 1.0)
        first = int(wins.argmax())
        return self._next + first if wins[first] else None
