"""Sizes as people write them: `4`, `1-4`, `2-16:2` (steps of 2), `1,2,4,8`, `1-4,8,16`."""

import re
from itertools import pairwise
from typing import Final

from voda.domain.errors import InvalidField
from voda.domain.job import MOST_REPLICAS
from voda.domain.sizes import JobSizes

_RANGE: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6})(?::([0-9]{1,6}))?)?")
_MOST_LETTERS: Final = 4_096
_MOST_RANGES: Final = 256
"""An estimate of each, and a place in each event, bound what a job may take."""


def parse_sizes(text: str, field: str, *, most: int = MOST_REPLICAS) -> JobSizes:
    """Return the sizes that a text says, from 1 to `most` and ascending; raises InvalidField, which names the field."""
    if len(text) > _MOST_LETTERS:
        raise InvalidField(field, f"{field}: expected up to {_MOST_LETTERS:,} letters, got {len(text):,}")
    numbers: list[int] = []
    for part in text.split(","):
        numbers += _range(part.strip(), field, most)
        if len(numbers) > most:
            break
    for before, after in pairwise(numbers):
        if before >= after:
            why = f"{after} twice" if before == after else f"{after} after {before}"
            raise InvalidField(field, f"{field}: expected sizes in ascending order, each once, got {why}")
    sizes = JobSizes.of(numbers)
    if len(sizes.ranges) > _MOST_RANGES:
        raise InvalidField(field, f"{field}: expected up to {_MOST_RANGES} ranges of equal steps, got more")
    return sizes


def _range(text: str, field: str, most: int) -> range:
    if (match := _RANGE.fullmatch(text)) is None:
        raise InvalidField(field, f"{field}: {_expected(most)}, got {text[:40]!r}")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if not 1 <= first <= last <= most or not step:
        raise InvalidField(field, f"{field}: {_expected(most)}, got {text[:40]!r}")
    if (last - first) % step:
        reached = last - (last - first) % step
        further = f" or {first}-{reached + step}:{step}" if reached + step <= most else ""
        raise InvalidField(
            field,
            f"{field}: steps of {step} from {first} do not reach {last}: expected {first}-{reached}:{step}{further},"
            f" got {text}",
        )
    return range(first, last + 1, step)


def _expected(most: int) -> str:
    return f"expected 1 to {most:,}, such as 2, 1-4, 2-16:2 or 1,2,4,8"
