"""Events of the log, as they travel over HTTP."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from voda.wire.base import Instant, View


class EventView(View, frozen=True, kw_only=True):
    """One event of the log."""

    position: int
    stream: str
    version: int
    event_id: str
    type: str
    recorded_at: Instant
    actor: str
    message: Annotated[str, Meta(description="What happened, in words.")]
    data: Annotated[Mapping[str, Any], Meta(description="As in the log; manifests are left out unless asked for.")]


class EventList(View, frozen=True, kw_only=True):
    """A page of events."""

    items: tuple[EventView, ...]
    last_position: Annotated[int, Meta(description="Ask with after=last_position for what follows.")]
    end: Annotated[
        int,
        Meta(
            description="Where the log ends: there is more to ask for while last_position < end, even if this page is"
            " not full."
        ),
    ]
