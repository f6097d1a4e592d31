"""One look that is to come, however many ask for it.

Rule: whether it came is remembered, not read from a clock: a timer may come before its time, as those of uvloop do,
which counts whole milliseconds. Whoever is woken finds out what is due, and asks again where nothing is yet.
"""

import asyncio
import math
from collections.abc import Callable

from voda.cluster.local.context import Site


class Alarm:
    """Has something done once, at the earliest of the times asked for since it was done last.

    Args:
        site: has the timers.
        act: what is done.
    """

    def __init__(self, site: Site, act: Callable[[], None]) -> None:
        self._site = site
        self._act = act
        self._rings_at = math.inf
        """Loop time for which it is set; infinity while it is not."""

    def set(self, pause_s: float) -> None:
        """Have it done after a pause; where it is to be done sooner, nothing changes."""
        rings_at = asyncio.get_running_loop().time() + pause_s
        if rings_at < self._rings_at:
            self._rings_at = rings_at
            self._site.after(pause_s, lambda: self._ring(rings_at))

    def _ring(self, rings_at: float) -> None:
        # A timer that another one forestalled is heard no more.
        if rings_at == self._rings_at:
            self._rings_at = math.inf
            self._act()
