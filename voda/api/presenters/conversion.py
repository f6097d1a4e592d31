"""Makes records from what the domain has: fields of the same name as they are, instants as RFC 3339 in UTC."""

from datetime import UTC, datetime
from typing import Any, TypeVar, overload

from voda.api.schemas import View

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
