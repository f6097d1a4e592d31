"""The caller of a request: the user, the role, and what the role may do with a job of somebody else."""

from typing import Literal

from msgspec import Struct

from voda.domain.errors import NotAllowed
from voda.domain.job import JobSpec

CallerRole = Literal["admin", "user", "viewer", "scheduler", "job"]
FoundBy = Literal["token", "session", "socket", "no tokens"]
"""How the server knows: by the token, by a session that a login began, by the account of the process at its Unix
socket, or it asks nobody."""


class Caller(Struct, frozen=True, kw_only=True):
    """Whom the server takes the caller for."""

    user: str
    role: CallerRole
    job_id: str = ""
    found_by: FoundBy = "token"


class CallerView(Caller, frozen=True, kw_only=True):
    """What callers are told of themselves, and of the server."""

    warning: str = ""
    """What is wrong though the server works, such as its clock, one sentence; empty: nothing."""


def is_owner(spec: JobSpec, caller: Caller) -> bool:
    """Return whether the caller may do and see what only a job's owner and admins may."""
    return caller.role == "admin" or (caller.role == "user" and spec.user == caller.user)


def require_owner(spec: JobSpec, caller: Caller, *, what: str) -> None:
    """Refuse callers that are neither the job's owner nor an admin with NotAllowed; `what` is like "delete it"."""
    if not is_owner(spec, caller):
        raise NotAllowed(f"job {spec.job_id} belongs to {spec.user or 'nobody'}: only they and admins may {what}")
