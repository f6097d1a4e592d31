"""What goes wrong between a caller and the API, and how it is told: application/problem+json (RFC 9457).

Rule: whoever asked learns what, which, expected, got and what to do next; nobody learns what is inside.
"""

from voda.domain.errors import PermanentError


class Unauthorized(PermanentError):
    """The caller showed no token, or one that is unknown."""


class PreconditionFailed(PermanentError):
    """The resource is not what the caller believed it to be (If-Match)."""


class TooManyJobs(PermanentError):
    """The user has as many live jobs as one may have."""


class UnreadableBody(PermanentError):
    """The body of a request cannot be read as what it says it is."""


class WrongMediaType(PermanentError):
    """The body of a request is of a type that is not read here."""
