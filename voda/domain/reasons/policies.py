"""Why a policy, a priority or the cost of a restart gives a job so many workers."""

from typing import Literal

from voda.domain.gpus import Gpus
from voda.domain.reasons.base import ReasonPart

Order = Literal["submission", "time_left", "service"]
"""First submitted, least time left or least served first."""


class InOrder(ReasonPart, frozen=True, kw_only=True):
    """So many jobs share the GPUs in an order, and others have none."""

    running: int
    others: int = 0
    gpus: Gpus
    order: Order = "submission"
    priority: int | None = None
    """Of all of them, where there are jobs of others; None: of any."""
    user: str | None = None
    """Of all of them, where users take turns; None: of anybody."""
    is_alone: bool = True
    """Whether there is no other job, where one is said to share with none; others may not have these GPUs now."""


class AtMaximum(ReasonPart, frozen=True, kw_only=True):
    """It has as many workers as it may have."""

    workers: int
    set_by: str = ""
    """The user who set that since it was submitted; empty: nobody, or not known."""
    set_at: float | None = None
    """Instant of that, seconds since the epoch; None: it was submitted so."""


class ByGain(ReasonPart, frozen=True, kw_only=True):
    """By gain and time left at this size; None: that is not known."""

    left_s: int | None = None


class Gain(ReasonPart, frozen=True, kw_only=True):
    per_gpu: float


class Compacted(ReasonPart, frozen=True, kw_only=True):
    """Shrunk to its minimum, while so many jobs cannot start."""

    pending: int


class BestSpeedup(ReasonPart, frozen=True, kw_only=True):
    """The sizes of all jobs together have the highest total speedup."""

    speedup: float
    gpus: Gpus


class ByValue(ReasonPart, frozen=True, kw_only=True):
    """What a GPU is worth with the job: the seconds per second by which all completion times together shrink."""

    per_gpu: float
    """By its last step."""
    next_per_gpu: float = 0.0
    """With the next one in line, by the best step that nobody took; 0: nobody wants more."""


class LessValue(ReasonPart, frozen=True, kw_only=True):
    """A GPU would be worth less with the job than with all that have some, in the same unit."""

    per_gpu: float
    least_per_gpu: float = 0.0
    """Of those that have some."""


PolicyCause = InOrder | AtMaximum | ByGain | Gain | Compacted | BestSpeedup | ByValue | LessValue


class HigherPriority(ReasonPart, frozen=True, kw_only=True):
    """So many jobs of higher priority have so many GPUs."""

    jobs: int
    gpus: Gpus


class UserTurns(ReasonPart, frozen=True, kw_only=True):
    """So many users take turns; the job's has so many GPUs by this plan, and had so many lately, in the mean."""

    users: int
    gpus: Gpus
    had_gpus: float


class GrowthUnpaid(ReasonPart, frozen=True, kw_only=True):
    """To grow to so many workers would save less than it costs."""

    to: int
    saved_s: int = 0
    cost_s: int
    lasts_s: int | None = None
    """For which it is likely to keep the GPUs; None: until it ends."""


class GrowthNearRetry(ReasonPart, frozen=True, kw_only=True):
    """A job whose program failed needs the GPUs again, so soon."""

    in_s: float


class OthersGrowthUnpaid(ReasonPart, frozen=True, kw_only=True):
    """To grow other jobs by these GPUs would not pay."""


class ShrinkNeedless(ReasonPart, frozen=True, kw_only=True):
    """To shrink to so many workers would free GPUs that no other job needs now."""

    to: int


ThrashCause = GrowthUnpaid | GrowthNearRetry | OthersGrowthUnpaid | ShrinkNeedless
