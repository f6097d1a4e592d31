"""Events as the API shows them: as records, and as frames of a stream of server-sent events."""

from functools import cached_property

import msgspec
from msgspec.structs import replace

from voda.events.envelope import Event
from voda.events.event_text import describe
from voda.events.types import AnyFact, JobSubmitted
from voda.wire.base import view_of
from voda.wire.events import EventView

_encode = msgspec.json.Encoder().encode


class EventFrames:
    """One event as server-sent events; each frame is made once, for all streams that send it."""

    def __init__(self, event: Event) -> None:
        self.event = event

    @cached_property
    def frame(self) -> bytes:
        """The event without a manifest."""
        return frame_of(self.event)

    @cached_property
    def full_frame(self) -> bytes:
        """The event with the manifest, if it has one."""
        return frame_of(self.event, with_manifest=True)


def event_of(event: Event, *, with_manifest: bool = False) -> EventView:
    """Return an event; a manifest, which may be long, only where it was asked for."""
    data = msgspec.to_builtins(_fact(event.data, with_manifest), str_keys=True)
    return view_of(EventView, event, message=describe(event), data=data)


def frame_of(event: Event, *, with_manifest: bool = False) -> bytes:
    """Return a server-sent event: the position as the id to resume from, the type, the record as JSON."""
    record = _encode(event_of(event, with_manifest=with_manifest))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.position, event.type.encode(), record)


def _fact(fact: AnyFact, with_manifest: bool) -> AnyFact:
    if isinstance(fact, JobSubmitted) and not with_manifest:
        return replace(fact, spec=replace(fact.spec, manifest=None))
    return fact
