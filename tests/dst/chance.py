"""Chance by name: every use draws from a stream of its own.

Rule: what one part draws shifts no draw of another, so that a story with one fault less stays nearly the same story.
"""

from random import Random

from voda.domain.rng import rng_at


class Chance:
    """The streams of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[str, Random] = {}

    def of(self, name: str) -> Random:
        """Return the stream of that name; asked again, it goes on where it was."""
        if name not in self._streams:
            self._streams[name] = rng_at(self._seed, name)
        return self._streams[name]
