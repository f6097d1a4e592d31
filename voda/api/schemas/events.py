"""Events of the log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from voda.api.schemas.base import View


class EventView(View, frozen=True, kw_only=True):
    """One event of the log."""

    position: int
    stream: str
    version: int
    event_id: str
    type: str
    recorded_at: datetime
    actor: str
    data: Mapping[str, Any]
    """As in the log; manifests are left out unless asked for."""


class EventList(View, frozen=True, kw_only=True):
    """A page of events."""

    items: tuple[EventView, ...]
    last_position: int
    """Ask with after=last_position for what follows."""
    end: int
    """Where the log ends: there is more to ask for while last_position < end, even if this page is not full."""
