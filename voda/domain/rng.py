"""Chance, as a function: the same seed and position always give the same draws."""

import random


def rng_at(seed: int, position: int | str = 0) -> random.Random:
    """Return a generator that depends on nothing but the seed of the run and a position of its log, or a name."""
    return random.Random(f"{seed}/{position}")
