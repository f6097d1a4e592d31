"""Whose turn it is under the pairwise priority of AFS-L.

The priority is no order: a may beat b, b beat c, and c beat a. The top job is by definition the one left when a
champion is challenged by one job after the other, earlier ones first. Rule: the answer is that of the plain scan.

Only the champion changes between two scans, so all that was decided before its place in the line still holds: the
former champions wait on a stack, and the scan goes on from the last champion's place. Each scan takes one champion
off the stack, so that all scans together put on hardly more champions than there are replicas handed out.
"""

import math
from collections.abc import Sequence

import numpy as np


class Tournament:
    """The jobs in the line, by their places 0, 1, 2, ...; at first without any share."""

    def __init__(self, remaining_s: Sequence[float]) -> None:
        """Start with every job in the race and without a share.

        Args:
            remaining_s: W of each job, in the order of the line; infinite when unknown.
        """
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

    def raise_share(self, place: int, speedup: float, next_speedup: float) -> None:
        """Note that the champion got a step: its speedup T(n) is this, and T(n + 1) would be that."""
        gain = next_speedup - speedup
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
