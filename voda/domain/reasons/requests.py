"""Why a job is halted or canceled, and a node drained: somebody asked for it, or what it is for can no longer be."""

from voda.domain.reasons.base import ReasonPart


class Requested(ReasonPart, frozen=True, kw_only=True):
    """Somebody has asked for it."""

    by: str = ""
    """A user; empty: not known."""
    text: str = ""
    """Why, in their words."""


class ObjectGone(ReasonPart, frozen=True, kw_only=True):
    """Somebody has deleted the object of the job in the cluster."""

    object: str
    """Its kind, such as `MPIJob`."""
    is_replaced: bool = False
    """Whether there is another one of its name."""


class NotCompleted(ReasonPart, frozen=True, kw_only=True):
    """A job that another one waits for has ended otherwise."""

    job: str
    is_canceled: bool = False
    array: str = ""
    """Of which it is a task, where the whole array is waited for."""


class TasksMissing(ReasonPart, frozen=True, kw_only=True):
    """An array that a job waits for will never be whole: not all of its tasks were submitted."""

    array: str


class EndUnknown(ReasonPart, frozen=True, kw_only=True):
    """What a job waits for ended too long ago to know how."""

    target: str
    """Job or array, as `Dependency.target` has it."""


Unmet = NotCompleted | TasksMissing | EndUnknown
"""Why what a job waits for can no longer be."""
CancelCause = Requested | ObjectGone | Unmet
