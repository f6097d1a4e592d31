"""The base of every record that is answered, and how an instant travels.

Rule: times are RFC 3339 in UTC; spans end in `_s`; a field is never renamed within /api/v1, only added.
"""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

Instant = Annotated[datetime, Meta(tz=True)]
"""RFC 3339, in UTC."""


class View(Struct, frozen=True, kw_only=True):
    """Base of all that is answered."""
