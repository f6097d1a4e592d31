"""The sizes at which a job can run: numbers of workers. Of text they are made in `text`.

Rule: what it costs to ask does not grow with the sizes, but with the steps in them, and slowly.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from msgspec import Struct


class SizeRange(NamedTuple):
    """first, first + step, ... to last."""

    first: int
    last: int
    step: int = 1


class JobSizes(Struct, frozen=True):
    """Numbers of workers, none of them 0; where a job has some, one or more."""

    ranges: tuple[SizeRange, ...]
    """Ascending, apart from each other."""

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "JobSizes":
        """Return these sizes, which ascend; the same ones are always equal."""
        ranges: list[SizeRange] = []
        for number in numbers:
            if ranges and ((end := ranges[-1]).first == end.last or number - end.last == end.step):
                ranges[-1] = SizeRange(end.first, number, number - end.last)
            else:
                ranges.append(SizeRange(number, number))
        return cls(tuple(ranges))

    def floor(self, most: int) -> int:
        """Return the largest size of at most so many; 0: there is none."""
        if not (at := bisect_right(self.ranges, (most, math.inf))):
            return 0
        first, last, step = self.ranges[at - 1]
        return first + (min(most, last) - first) // step * step

    def above(self, size: int) -> int:
        """Return the least size of more than that; 0: there is none."""
        at = bisect_right(self.ranges, (size, math.inf))
        if at and size < self.ranges[at - 1].last:
            first, _, step = self.ranges[at - 1]
            return first + ((size - first) // step + 1) * step
        return self.ranges[at].first if at < len(self.ranges) else 0

    def beyond(self, workers: int) -> "JobSizes":
        """Return how many workers make one of the sizes beside so many others; those fewer than 0 are taken away."""
        return JobSizes.of(size - workers for size in self if size > workers)

    @property
    def least(self) -> int:
        return self.ranges[0].first

    @property
    def most(self) -> int:
        return self.ranges[-1].last

    @property
    def is_dense(self) -> bool:
        """Whether it has every number from its least to its most."""
        return len(self.ranges) == 1 and self.ranges[0].step == 1

    def __contains__(self, size: int) -> bool:
        return size > 0 and self.floor(size) == size

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(first, last + 1, step) for first, last, step in self.ranges)

    def __str__(self) -> str:
        return ",".join(map(_range_text, self.ranges))


def _range_text(sizes: SizeRange) -> str:
    first, last, step = sizes
    if last - first <= step:
        return f"{first}" if first == last else f"{first},{last}"
    return f"{first}-{last}" if step == 1 else f"{first}-{last}:{step}"
