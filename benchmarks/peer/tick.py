"""The peer's clock: time passes in ticks, and every epoch ends on a whole second."""

import math
from typing import Final

from voda.simulator.training import EpochEnd

TICK_S: Final = 60
_NEXT_S: Final = 1e-6
"""The smallest step of the virtual clock."""


def whole_second_ends(begins_at: float) -> EpochEnd:
    """Return the hook that ends epochs as the peer does.

    The peer carries a job from tick to tick; in the tick in which the epoch ends it rounds what is left of the epoch,
    in (0, 60] s, to the nearest whole second, half to even. An epoch that ends less than half a second after a tick
    is so dated back onto the tick, but what is decided at that tick does not know it yet. Such an end is put one
    microsecond after the tick.

    Args:
        begins_at: instant of the first tick.
    """

    def end_of(start: float, seconds: float) -> float:
        begun_s = round(start - begins_at)
        in_this_tick_s = TICK_S - begun_s % TICK_S
        if seconds <= in_this_tick_s:
            return begins_at + begun_s + round(seconds)
        whole_ticks = math.ceil((seconds - in_this_tick_s) / TICK_S) - 1
        tick_s = begun_s + in_this_tick_s + whole_ticks * TICK_S
        in_last_tick_s = round(seconds - in_this_tick_s - whole_ticks * TICK_S)
        return begins_at + tick_s + (in_last_tick_s or _NEXT_S)

    return end_of
