"""The server itself: who asks, what it is, what went wrong."""

from typing import Literal

from voda.api.schemas.base import View


class Problem(View, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457, application/problem+json."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    """One sentence: what, which, expected, got, and what to do next."""
    field: str = ""
    """Path of the field that is wrong, e.g. spec.mpiReplicaSpecs.Worker.replicas."""
    job_id: str = ""


class Caller(View, frozen=True, kw_only=True):
    """Whom the server takes the caller for."""

    user: str
    role: Literal["admin", "user", "viewer", "job"]
    job_id: str = ""


class ServiceView(View, frozen=True, kw_only=True):
    """Version and health of the server; GET /api/v1."""

    version: str
    pools: tuple[str, ...]
    position: int
