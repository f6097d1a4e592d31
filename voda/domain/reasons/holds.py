"""Why a job may have no workers, whatever is free."""

from msgspec import Struct

from voda.domain.gpus import Gpus
from voda.domain.reasons.base import ReasonPart
from voda.domain.reasons.requests import Unmet


class Awaited(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    name: str
    phase: str = ""


class After(ReasonPart, frozen=True, kw_only=True):
    """It waits for others to end."""

    jobs: tuple[Awaited, ...]
    more: int = 0


class InVain(ReasonPart, frozen=True, kw_only=True):
    """What it waits for can never come."""

    why: Unmet


class NextTry(ReasonPart, frozen=True, kw_only=True):
    """It waits for the next try of its program."""


class BegunOnce(ReasonPart, frozen=True, kw_only=True):
    """Its program has begun, and is not to begin a second time: it keeps its workers as they are."""


class FixedBound(ReasonPart, frozen=True, kw_only=True):
    """With it, its user's jobs that are not restartable would have more GPUs than the pool lets them."""

    needs: Gpus
    others: Gpus
    """That the user's other ones have, or are to have before it."""
    most: Gpus


class LostRun(ReasonPart, frozen=True, kw_only=True):
    """Its program is not to begin a second time, and its first run is over."""

    cause: str = ""
    """What happened to its workers, as `Job.interruption` has it; empty: not known."""


class ArrayBound(ReasonPart, frozen=True, kw_only=True):
    array: str
    at_once: int


class Overdue(ReasonPart, frozen=True, kw_only=True):
    """So many workers did not leave cells that a guarantee needs in time."""

    workers: int
    grace_s: float
