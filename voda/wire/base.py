"""What the records on the wire share, and those that belong to no part of the API: problems, warnings, the service."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, TypeVar, get_args, get_type_hints, overload

from msgspec import Meta, Struct

Instant = Annotated[datetime, Meta(tz=True)]


class View(Struct, frozen=True, kw_only=True):
    """Base of all that is answered."""


V = TypeVar("V", bound=View)
_PLACES: Final[dict[tuple[type, ...], tuple[tuple[str, int], ...]]] = {}
"""A view and the types of its sources -> each field and the first source that has it."""


def view_of(view: type[V], *sources: object, **fields: Any) -> V:
    """Return a record with the given fields; the others are the attributes of their names, of the first source that has
    one. What is an instant in the record may be seconds since the epoch.
    """
    kinds = (view, *map(type, sources))
    if (places := _PLACES.get(kinds)) is None:
        places = _PLACES[kinds] = tuple((name, _place(name, sources)) for name in view.__struct_fields__)
    values = {name: fields[name] if name in fields else getattr(sources[place], name) for name, place in places}
    for name in _instants(view):
        if isinstance(values[name], float | int):
            values[name] = instant(values[name])
    return view(**values)


def _place(name: str, sources: Sequence[object]) -> int:
    return next((place for place, source in enumerate(sources) if hasattr(source, name)), 0)


@cache
def _instants(view: type[View]) -> Collection[str]:
    hints = get_type_hints(view).items()
    return tuple(name for name, kind in hints if kind is datetime or datetime in get_args(kind))


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
    policies: Annotated[tuple[str, ...], Meta(description="That a pool may have.")] = ()
    placers: tuple[str, ...] = ()
    gpu_resource: Annotated[str, Meta(description="By which pods ask for GPUs; empty on one machine.")] = ""


class UnknownReason(Struct, frozen=True, tag_field="kind", tag="unknown"):
    """What a client has of a reason of a kind that it does not know; the `message` beside it says it."""

    of: Annotated[str, Meta(description="Its kind.")]


class WarningView(View, frozen=True, kw_only=True):
    """A part of the manifest that this cluster does not honour."""

    field: str
    message: str
