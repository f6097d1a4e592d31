"""Why a job may have no workers, whatever is free."""

from msgspec import Struct

from voda.domain.reasons.base import ReasonPart


class Awaited(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    name: str
    phase: str = ""


class After(ReasonPart, frozen=True, kw_only=True):
    """It waits for others to end."""

    jobs: tuple[Awaited, ...]
    more: int = 0


class InVain(ReasonPart, frozen=True, kw_only=True):
    """What it waits for can never come."""

    text: str


class NextTry(ReasonPart, frozen=True, kw_only=True):
    """It waits for the next try of its program."""


class ArrayBound(ReasonPart, frozen=True, kw_only=True):
    array: str
    at_once: int


class Overdue(ReasonPart, frozen=True, kw_only=True):
    """So many workers did not leave cells that a guarantee needs in time."""

    workers: int
    grace_s: float
