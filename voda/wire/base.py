"""What the records on the wire share, and those that belong to no part of the API: problems, warnings, the service."""

from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar, overload

from msgspec import Meta, Struct

Instant = Annotated[datetime, Meta(tz=True)]


class View(Struct, frozen=True, kw_only=True):
    """Base of all that is answered."""


V = TypeVar("V", bound=View)


def view_of(view: type[V], source: object, **fields: Any) -> V:
    """Return a record with the given fields; the others are the attributes of `source` that have their names."""
    same = {name: getattr(source, name) for name in view.__struct_fields__ if name not in fields}
    return view(**same, **fields)


@overload
def instant(seconds: float) -> datetime: ...
@overload
def instant(seconds: None) -> None: ...
def instant(seconds: float | None) -> datetime | None:
    """Return seconds since the Unix epoch as a time in UTC; None stays None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


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


class WarningView(View, frozen=True, kw_only=True):
    """A part of the manifest that this cluster does not honour."""

    field: str
    message: str
