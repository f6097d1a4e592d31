"""Decodes JSON into the records of voda.client.

Rule: fields that a record does not know are ignored, fields that are missing have their default; anything else that
does not fit is PermanentError, because the server may be of another version.
"""

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from voda import __version__
from voda.domain.errors import PermanentError

T = TypeVar("T")
_PLAIN: Final[Mapping[Any, Any]] = {str: str, bool: bool, int: int, float: (int, float)}


def decode(body: bytes, kind: type[T]) -> T:
    """Return an answer as a record; PermanentError where it has another form, perhaps that of another version."""
    try:
        found: T = _convert(json.loads(body), kind, "the answer")
    except (ValueError, RecursionError) as error:
        raise PermanentError(
            f"voda does not understand the server's answer ({error}); it may not be voda, or a version other than"
            f" {__version__}"
        ) from error
    return found


def _convert(value: Any, kind: Any, path: str) -> Any:
    """Return a value of JSON as this type; raises ValueError."""
    if kind is Any:
        return value
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _convert(value, next(each for each in arguments if each is not type(None)), path)
    if origin is tuple and isinstance(value, list):
        return tuple(_convert(item, arguments[0], f"{path}[{index}]") for index, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {name: _convert(item, arguments[1], f"{path}.{name:.40}") for name, item in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        return _record(value, kind, path)
    if kind is datetime and isinstance(value, str):
        return datetime.fromisoformat(value)
    if kind in _PLAIN and isinstance(value, _PLAIN[kind]) and (kind is bool or not isinstance(value, bool)):
        return float(value) if kind is float else value
    raise ValueError(f"{path}: expected {getattr(kind, '__name__', kind)}, got {value!r:.60}")


def _record(value: Mapping[str, Any], kind: Any, path: str) -> Any:
    found, hints = {}, _hints(kind)
    for field in fields(kind):
        if field.name in value:
            found[field.name] = _convert(value[field.name], hints[field.name], f"{path}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{path}: it has no {field.name}")
    return kind(**found)


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)
