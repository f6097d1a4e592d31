"""Decodes answers into the records of voda.wire.

Rule: fields that a record does not know are ignored, fields that are missing have their default, and of a reason of
another kind its kind is kept; anything else that does not fit is PermanentError, because the server may be of another
version.
"""

from typing import Any, TypeVar

import msgspec

from voda import __version__
from voda.domain.errors import PermanentError
from voda.domain.reasons.outcomes import JobReason

T = TypeVar("T")


def decode(body: bytes, kind: type[T]) -> T:
    """Return an answer as a record; PermanentError where it has another form, perhaps that of another version."""
    try:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError:
            return msgspec.convert(_with_known_reasons(msgspec.json.decode(body)), kind)
    except msgspec.MsgspecError as error:
        raise PermanentError(
            f"voda does not understand the server's answer ({error}); it may not be voda, or a version other than"
            f" {__version__}"
        ) from error


def _with_known_reasons(found: Any) -> Any:
    """Return an answer with UnknownReason in place of each reason that this version does not know."""
    if isinstance(found, list):
        return [_with_known_reasons(each) for each in found]
    if not isinstance(found, dict):
        return found
    return {
        name: {"kind": "unknown", "of": str(value["kind"])}
        if name.endswith("reason") and isinstance(value, dict) and "kind" in value and not _is_known(value)
        else _with_known_reasons(value)
        for name, value in found.items()
    }


def _is_known(reason: object) -> bool:
    try:
        msgspec.convert(reason, JobReason)
    except msgspec.ValidationError:
        return False
    return True
