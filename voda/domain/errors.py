"""Every error voda raises on purpose: a VodaError is transient or permanent.

A message says what, which, expected, got, and where it helps what to do next: one sentence, for the user.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_ALIKE: Final = 0.75
"""One letter of four may be another: a name that is farther off misleads."""
_LONGEST_COMPARED: Final = 80


def closest(name: str, known: Iterable[str], *, alike: float = _ALIKE) -> str:
    """Return the known name that a mistyped one most probably means, as a message suggests it; empty: none is close.

    `alike` is the ratio of difflib that it needs at least, 0 to 1.
    """
    close = get_close_matches(name[:_LONGEST_COMPARED], known, n=1, cutoff=alike)
    return close[0] if close else ""


class VodaError(Exception):
    """Root of all errors raised on purpose."""


class TransientError(VodaError):
    """Try again later, unchanged: the same call may succeed."""


class PermanentError(VodaError):
    """Trying the same again fails the same way."""


class StoreUnavailable(TransientError):
    """The event store does not answer or is locked."""


class ClusterUnavailable(TransientError):
    """The cluster does not answer; it asks to be left alone for `retry_after_s`, 0 = it did not say."""

    def __init__(self, message: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ChangedMeanwhile(TransientError):
    """What was to be changed is not as it was seen, somebody else was faster: look again."""


class ServerBusy(TransientError):
    """The server does as much as it can for all callers."""


class TooManyRequests(TransientError):
    """The user has as much under way as one user may."""


class QuotaExceeded(TransientError):
    """The user has written as much as one may within a time: there is room again after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class InvalidInput(PermanentError):
    """The user's file, row, option or manifest cannot be used."""


class DataNotFound(InvalidInput):
    """A public data set is not on this machine."""


class InvalidField(InvalidInput):
    """A field of a manifest or request is wrong; `field` is its path, as in spec.mpiReplicaSpecs.Worker.replicas."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class MissingReference(InvalidField):
    """A field names something that is not there yet."""


class NotFound(PermanentError):
    """There is nothing of that name."""


class FolderGone(PermanentError):
    """The job's folder, with its output, was deleted."""


class AlreadyExists(PermanentError):
    """There is something of that name already."""


class Unauthorized(PermanentError):
    """The caller showed no token, or one that is unknown."""


class NotAllowed(PermanentError):
    """The caller's role does not allow this."""


class PreconditionFailed(PermanentError):
    """The resource is not what the caller saw: get it again, decide again."""


class WrongState(PermanentError):
    """The resource is in a state in which this cannot be done, such as a job that has ended."""


class TooManyJobs(PermanentError):
    """The user has as many live jobs as one may have."""


class VersionConflict(PermanentError):
    """Somebody else wrote to the stream first: read again, decide again."""


class ActionRefused(PermanentError):
    """The cluster cannot carry out an action as it stands: no such job or node, or no room on it."""


class Fenced(PermanentError):
    """A leader of a later epoch has written to the stream: stop deciding."""


class LogDamaged(PermanentError):
    """Bytes in the log are not what was written; `position` is the first damaged one, where known."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class LogArchived(PermanentError):
    """Events asked for are in the archive of the log; `base` is the position of the last archived one."""

    def __init__(self, message: str, base: int) -> None:
        super().__init__(message)
        self.base = base


class LogTooNew(PermanentError):
    """The log holds an event type or a schema this version does not know."""


class NotALog(PermanentError):
    """The file or database holds something else than a voda log."""


class StoreNotWritable(PermanentError):
    """The log cannot be written: full disk, read-only file or folder."""
