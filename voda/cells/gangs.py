"""Gangs: workers that start together or not at all, what one asks for, and the cells that it has.

A gang's state is not stored: it follows from who uses and who reserves its leafs. So a preemption that is withdrawn
leaves no trace at the gang that was to make room.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from voda.domain.cells import OPPORTUNISTIC, GangPlacement, GangRequest, WorkerCells

__all__ = [
    "FREE",
    "HIGHEST",
    "LOWEST",
    "OPPORTUNISTIC",
    "Gang",
    "GangPlacement",
    "GangRequest",
    "GangState",
    "WorkerCells",
]

LOWEST: Final = OPPORTUNISTIC + 1
"""Of priorities with a guarantee."""
HIGHEST: Final = 1000
FREE: Final = -2
"""The priority of a leaf that nobody uses; below every other."""


class GangState(StrEnum):
    """What becomes of a gang's cells."""

    PREEMPTING = "Preempting"
    """It has reserved cells that others still use."""
    ALLOCATED = "Allocated"
    BEING_PREEMPTED = "BeingPreempted"
    """Another gang has reserved some of its cells."""


class Gang(Struct, frozen=True, kw_only=True, gc=False):
    """A gang that uses or has reserved cells."""

    request: GangRequest
    placement: GangPlacement
    leafs: tuple[int, ...]
    """The physical leafs; those that are no longer there are left out."""
    virtual: Mapping[int, int] = field(default_factory=dict)
    """Physical leaf -> its virtual leaf; empty: opportunistic."""
    workers: Mapping[int, str] = field(default_factory=dict)
    """Index in the placement -> the worker that runs there."""
    waiting: frozenset[str] = frozenset()
    """Workers that wait until the gang's cells are free."""
    is_waiting: bool = False
    """Whether it has only reserved its cells."""
    downgraded_by: str = ""
    """The gang, perhaps itself, for which it lost its guarantee."""

    @property
    def name(self) -> str:
        """The name that it was requested by."""
        return self.request.name

    def slot(self, leafs: int) -> int | None:
        """Return the index of the first place for a worker of that size that nobody has; None = all are taken."""
        free = (i for i, size in enumerate(self.request.sizes) if size == leafs and i not in self.workers)
        return next(free, None)
