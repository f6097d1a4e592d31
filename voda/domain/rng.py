"""Chance, as a function: the same seed and position always give the same draws."""

import random


def rng_at(seed: int, position: int | str = 0) -> random.Random:
    """Return a generator that depends on nothing but its arguments.

    Args:
        seed: of the run.
        position: of the log, or a name, so that independent uses do not share draws.
    """
    return random.Random(f"{seed}/{position}")
