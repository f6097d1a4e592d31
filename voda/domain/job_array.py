"""Job arrays: many jobs of one program, told apart by an index, as Slurm writes them: `0-99%10`, `0-8:2`, `1,3,7`.

Rule: what users write is bounded before it is expanded.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from voda.domain.errors import InvalidInput

MOST_TASKS: Final = 5_000
"""Of one array: all of them are submitted in one append, and the first plan names each of them."""
MOST_INDEX: Final = 999_999
_MOST_LETTERS: Final = 500
_PART: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_LIMIT: Final = re.compile(r"[0-9]{1,9}")


class ArrayRange(Struct, frozen=True):
    """Which tasks an array has, and how many of them may be at work at once."""

    indices: str
    """As written, without the bound: `0-99`."""
    at_once: int = 0
    """0 = all."""


class ArrayTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of one job in its array."""

    array_id: str
    """The job id of the task that was submitted first, which no other array has."""
    name: str
    """Of the array."""
    index: int
    indices: str
    """Of all tasks: `0-99`."""
    at_once: int = 0
    """So many tasks may be at work at once; 0 = all."""

    @property
    def count(self) -> int:
        """Tasks in all."""
        return len(indices_of(self.indices))

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which a program knows its task."""
        indices = indices_of(self.indices)
        return {
            "VODA_ARRAY_NAME": self.name,
            "VODA_ARRAY_TASK_ID": str(self.index),
            "VODA_ARRAY_TASK_COUNT": str(len(indices)),
            "VODA_ARRAY_TASK_MIN": str(indices[0]),
            "VODA_ARRAY_TASK_MAX": str(indices[-1]),
        }


def parse_array(text: str) -> ArrayRange:
    """Return what a user wrote as a range of tasks; raises InvalidInput."""
    indices, percent, limit = text.strip().partition("%")
    if percent and (not _LIMIT.fullmatch(limit) or int(limit) < 1):
        raise InvalidInput(f"expected a number of 1 or more after %, as in 0-99%10, got {limit[:40]!r}")
    indices_of(indices)
    return ArrayRange(indices, int(limit) if percent else 0)


@lru_cache(maxsize=1_000)
def indices_of(text: str) -> Sequence[int]:
    """Return the indices of `0-8:2,11`, ascending; raises InvalidInput."""
    if len(text) > _MOST_LETTERS:
        raise InvalidInput(f"expected up to {_MOST_LETTERS} characters, got {len(text)}: give a range, as in 0-99")
    found: set[int] = set()
    for part in text.split(","):
        found.update(_range(part))
        if len(found) > MOST_TASKS:
            raise _too_many(len(found))
    return tuple(sorted(found))


def _range(part: str) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise InvalidInput(f"expected tasks as in 0-99%10, 0-8:2 or 1,3,7, got {part[:40]!r}")
    first, last, step = (None if group is None else int(group) for group in match.groups())
    assert first is not None, "the expression has it"
    last = first if last is None else last
    step = 1 if step is None else step
    if max(first, last) > MOST_INDEX:
        raise InvalidInput(f"expected indices of 0 to {MOST_INDEX}, got {max(first, last)}")
    if last < first:
        raise InvalidInput(f"expected a range that ascends, got {part[:40]!r}")
    if step < 1:
        raise InvalidInput(f"expected a step of 1 or more, got {part[:40]!r}")
    found = range(first, last + 1, step)
    if len(found) > MOST_TASKS:
        raise _too_many(len(found))
    return found


def _too_many(tasks: int) -> InvalidInput:
    return InvalidInput(f"expected up to {MOST_TASKS:,} tasks, got {tasks:,}: submit several arrays")
