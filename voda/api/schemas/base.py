"""What all records of the wire have in common.

Rule: times are RFC 3339 in UTC; spans end in `_s`; a field is never renamed within /api/v1, only added.
"""

from msgspec import Struct


class View(Struct, frozen=True, kw_only=True):
    """Base of all that is answered."""


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all that is sent to us: a field we do not know is refused, not dropped."""
