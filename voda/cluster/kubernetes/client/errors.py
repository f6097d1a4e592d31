"""The answers of an API server that are no success, as voda's errors.

ClusterUnavailable            try again
├── Unreachable               no connection: the server has not even seen the request
├── Throttled                 429, or 503 with Retry-After: not before `retry_after_s`
├── Conflict                  409: the object changed, or is there already; read it again
├── Gone                      410: the resource version is too old; list again
└── NotServed                 404 for a whole kind: no such resource, or the server is only starting
ActionRefused
└── Rejected                  400, 403, 422 and the like: the same request fails again
    └── Absent                404 for an object
"""

from voda.domain.errors import ActionRefused, ChangedMeanwhile, ClusterUnavailable


class Unreachable(ClusterUnavailable):
    """There is no connection to the server, which has not seen the request."""


class Throttled(ClusterUnavailable):
    """The server asks to be called later.

    Args:
        message: the sentence for the user.
        retry_after_s: how much later.
    """

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message, retry_after_s)


class Conflict(ClusterUnavailable, ChangedMeanwhile):
    """The object is not as expected: it changed, or it is there already."""


class Gone(ClusterUnavailable):
    """The server no longer keeps the version that a watch or a list was to go on from."""


class NotServed(ClusterUnavailable):
    """The server knows no such kind of object, or not yet: while it starts it forgets the custom ones for a moment."""


class Rejected(ActionRefused):
    """The server refuses the request as it stands.

    Args:
        message: the sentence for the user.
        code: HTTP status.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Absent(Rejected):
    """The object of the request, or the one it belongs to, is not there."""
