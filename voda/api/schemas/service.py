"""The server itself: who asks, what it is, what went wrong."""

from typing import Annotated

from msgspec import Meta

from voda.api.schemas.base import View


class Problem(View, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457, application/problem+json."""

    type: str = "about:blank"
    title: str
    status: int
    detail: Annotated[str, Meta(description="One sentence: what, which, expected, got, and what to do next.")]
    field: Annotated[
        str, Meta(description="Path of the field that is wrong, e.g. spec.mpiReplicaSpecs.Worker.replicas.")
    ] = ""
    job_id: str = ""


class ServiceView(View, frozen=True, kw_only=True):
    """Version and health of the server; GET /api/v1."""

    version: str
    pools: tuple[str, ...]
    position: int
