"""Decodes answers into the records of voda.wire.

Rule: fields that a record does not know are ignored, fields that are missing have their default; anything else that
does not fit is PermanentError, because the server may be of another version.
"""

from typing import TypeVar

import msgspec

from voda import __version__
from voda.domain.errors import PermanentError

T = TypeVar("T")


def decode(body: bytes, kind: type[T]) -> T:
    """Return an answer as a record; PermanentError where it has another form, perhaps that of another version."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise PermanentError(
            f"voda does not understand the server's answer ({error}); it may not be voda, or a version other than"
            f" {__version__}"
        ) from error
