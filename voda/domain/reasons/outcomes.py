"""What becomes of a job by a plan, with its causes: the reason that the plan gives."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import NO_GPUS, ContainerGpus, GpuRequest, Gpus
from voda.domain.reasons.base import ReasonPart
from voda.domain.reasons.cells import (
    GpusTooSmall,
    IdleCells,
    InCells,
    MostLeft,
    NeedsPart,
    QuotaCause,
    TakenBack,
)
from voda.domain.reasons.failures import JobFailure
from voda.domain.reasons.holds import After, ArrayBound, BegunOnce, FixedBound, InVain, LostRun, NextTry, Overdue
from voda.domain.reasons.nodes import Drained, ForLauncher, LacksRoom, NeedsNoGpu, NoneFree, RoomInVain
from voda.domain.reasons.places import PlaceCause
from voda.domain.reasons.policies import HigherPriority, PolicyCause, ThrashCause, UserTurns
from voda.domain.reasons.requests import CancelCause
from voda.domain.reasons.stalls import Stuck

R = TypeVar("R", bound="Explained")
Cause = (
    PolicyCause
    | HigherPriority
    | UserTurns
    | ThrashCause
    | LacksRoom
    | NoneFree
    | NeedsNoGpu
    | ForLauncher
    | After
    | InVain
    | NextTry
    | BegunOnce
    | FixedBound
    | LostRun
    | ArrayBound
    | Overdue
    | Stuck
    | RoomInVain
    | Drained
    | InCells
    | QuotaCause
    | IdleCells
    | TakenBack
    | NeedsPart
    | GpusTooSmall
    | MostLeft
    | PlaceCause
)


class Explained(ReasonPart, frozen=True, kw_only=True):
    """What becomes of a job, and why; of several causes the first one counts most."""

    why: tuple[Cause, ...] = ()


class Waits(Explained, frozen=True, kw_only=True):
    """It has no workers, and gets none."""

    needs: Gpus = NO_GPUS
    """That a policy would give it; 0: it is not GPUs alone that it lacks."""
    free: Gpus = NO_GPUS


class Preemptor(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job that gets GPUs which another one had."""

    job_id: str
    user: str = ""
    """Empty: not known."""


class Preempted(Waits, frozen=True, kw_only=True):
    """It had workers, and gets none."""

    by: tuple[Preemptor, ...] = ()
    """The first of them; empty: nobody gets its GPUs by this plan."""
    more: int = 0
    """There are besides."""


class Keeps(Explained, frozen=True, kw_only=True):
    workers: int


class Starts(Explained, frozen=True, kw_only=True):
    """Without a cause: with as many as it requested."""

    workers: int


class Resized(Explained, frozen=True, kw_only=True):
    """Without a cause: to as many as it requested."""

    had: int
    workers: int


class Runs(Explained, frozen=True, kw_only=True):
    """It gets fewer workers than it was meant to: the nodes have no room for more."""

    workers: int


class GetsPart(Explained, frozen=True, kw_only=True):
    """It gets a part of a GPU."""

    request: GpuRequest
    node: str
    is_whole: bool = False
    """Whether nobody shares the GPU yet."""


class GpuMate(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Another pod on the same GPU, and what it has."""

    pod: str
    containers: Mapping[str, ContainerGpus]


class HasPart(Explained, frozen=True, kw_only=True):
    """It has a part of a GPU, beside others."""

    node: str
    containers: Mapping[str, ContainerGpus]
    beside: tuple[GpuMate, ...] = ()


class Halted(Explained, frozen=True, kw_only=True):
    """Somebody has halted it."""

    by: str = ""
    """A user; empty: not known."""
    text: str = ""
    """Why, in their words."""


Reason = Waits | Preempted | Keeps | Starts | Resized | Runs | GetsPart | HasPart | Halted
"""What a plan gives as the reason for a job's workers."""


class Canceling(ReasonPart, frozen=True, kw_only=True):
    """It is being canceled."""


class Canceled(ReasonPart, frozen=True, kw_only=True):
    """Its cancellation was requested."""

    why: CancelCause


class Failed(ReasonPart, frozen=True, kw_only=True):
    """It has failed for good."""

    why: JobFailure


JobReason = Reason | Canceling | Canceled | Failed
"""Why a job has its workers, or none, or how it ended."""


class Demoted(ReasonPart, frozen=True, kw_only=True):
    """It was served so much since its start."""

    served_gpu_s: int
    limit_gpu_s: int


class Promoted(ReasonPart, frozen=True, kw_only=True):
    """It has waited for so many times its last run."""

    waited_s: int
    times: float
    last_run_s: int


QueueReason = Demoted | Promoted


def also(reason: R, *causes: Cause) -> R:
    """Return the reason with more causes after its own."""
    return replace(reason, why=(*reason.why, *causes))


def is_refused(reason: Reason | None) -> bool:
    """Return whether a plan gives a job fewer workers as nodes refuse it."""
    return reason is not None and any(isinstance(each, LacksRoom | NoneFree) and each.refused for each in reason.why)


def named(names: Sequence[str], most: int) -> tuple[tuple[str, ...], int]:
    """Return the first names, and how many there are more."""
    return tuple(names[:most]), max(0, len(names) - most)
