"""Every error voda raises on purpose, as a tree.

VodaError
├── TransientError            try again later, unchanged
│   ├── StoreUnavailable
│   ├── ClusterUnavailable
│   └── ChangedMeanwhile      what was to be changed is not as it was seen: look again
└── PermanentError            trying the same again fails the same way
    ├── InvalidInput          the user's file, row, option or manifest
    │   └── DataNotFound      a public data set that is not on this machine
    ├── VersionConflict       somebody else wrote to the stream first: read again, decide again
    ├── ActionRefused         the cluster cannot do this now: no such node, no room
    ├── NotFound              nothing of that name
    ├── AlreadyExists         something of that name is there already
    ├── Unauthorized          no token, or an unknown one
    ├── NotAllowed            the caller's role does not allow this
    ├── PreconditionFailed    it is not what the caller saw: get it again, decide again
    ├── WrongState            it is in a state in which this cannot be done
    ├── TooManyJobs           the user has as many live jobs as one may have
    ├── Fenced                a newer leader took over: stop deciding
    ├── LogDamaged            bytes that are not what was written
    ├── LogTooNew             written by a newer voda
    ├── NotALog               a file that voda did not write
    └── StoreNotWritable      disk full, read-only file or folder

A message says what, which, expected, got, and where it helps what to do next: one sentence.
"""


class VodaError(Exception):
    """Root of all errors raised on purpose."""


class TransientError(VodaError):
    """The same call may succeed later."""


class PermanentError(VodaError):
    """The same call will fail again."""


class StoreUnavailable(TransientError):
    """The event store does not answer or is locked."""


class ClusterUnavailable(TransientError):
    """The cluster does not answer.

    Args:
        message: the sentence for the user.
        retry_after_s: how long it asks to be left alone; 0 = it did not say.
    """

    def __init__(self, message: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ChangedMeanwhile(TransientError):
    """What was to be changed is not as it was believed to be: somebody else was faster."""


class InvalidInput(PermanentError):
    """What the user gave cannot be used."""


class DataNotFound(InvalidInput):
    """A public data set is not on this machine."""


class InvalidField(InvalidInput):
    """One field of a manifest or a request is wrong.

    Args:
        field: its path, as a user would write it: spec.mpiReplicaSpecs.Worker.replicas.
        message: the sentence for the user, which names the field too.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class NotFound(PermanentError):
    """There is nothing of that name."""


class AlreadyExists(PermanentError):
    """There is something of that name already."""


class Unauthorized(PermanentError):
    """The caller showed no token, or one that is unknown."""


class NotAllowed(PermanentError):
    """The caller's role does not allow this."""


class PreconditionFailed(PermanentError):
    """The resource is not what the caller believed it to be."""


class WrongState(PermanentError):
    """The resource is in a state in which this cannot be done, such as a job that has ended."""


class TooManyJobs(PermanentError):
    """The user has as many live jobs as one may have."""


class VersionConflict(PermanentError):
    """The stream's head is not where the writer believed it to be."""


class ActionRefused(PermanentError):
    """The cluster cannot carry out an action as it stands: no such job or node, or no room on it."""


class Fenced(PermanentError):
    """A leader of a later epoch has written to the stream."""


class LogDamaged(PermanentError):
    """Bytes in the log are not what was written.

    Args:
        message: the sentence for the user.
        position: first damaged position, where known.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class LogArchived(PermanentError):
    """Events asked for are not in the log any more: they are in its archive.

    Args:
        message: the sentence for the user.
        base: position of the last archived event.
    """

    def __init__(self, message: str, base: int) -> None:
        super().__init__(message)
        self.base = base


class LogTooNew(PermanentError):
    """The log holds an event type or a schema this version does not know."""


class NotALog(PermanentError):
    """The file or database holds something else than a voda log."""


class StoreNotWritable(PermanentError):
    """The log cannot be written: full disk, read-only file or folder."""
