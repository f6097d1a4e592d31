"""Reads a manifest's text: JSON or YAML, one document, plain values only.

Rule: an accepted text can be stored as JSON and read again unchanged, and no text is expensive to read: size, depth and
the number of values, those that aliases repeat included, have bounds.
"""

import json
import math
import re
from typing import Any, NoReturn

from voda.domain.errors import InvalidInput
from voda.manifests import yaml_text
from voda.manifests.odd_values import MOST_DEPTH, refuse_odd_values
from voda.manifests.yaml_text import BIGGEST_INT, MOST_VALUES, SMALLEST_INT

MOST_BYTES = 1_048_576
"""Of a manifest's text; Kubernetes takes no more either."""


def read(body: bytes, expected: str = "a mapping with apiVersion and kind") -> dict[str, Any]:
    """Return the mapping that a text of JSON or YAML holds; `expected` says what it is a mapping of.

    Raises:
        InvalidInput: it cannot be read, or holds something else than one mapping of plain values.
    """
    text = _decoded(body)
    begin = text.lstrip()[:1]
    if begin == "{" and (value := _json(text)) is not None:
        return value
    value = yaml_text.read(text)
    if not isinstance(value, dict):
        got = "a list" if isinstance(value, list) else "a single value"
        raise InvalidInput(f"expected {expected}, got {got}")
    return value


def repeated_key(body: bytes) -> str | None:
    """Return a key that some object of a text of JSON has twice; None where there is none."""
    try:
        _DECODER.decode(body.decode())
    except _RepeatedKey as error:
        return error.key
    except (InvalidInput, ValueError, RecursionError):
        # Such as numbers that a manifest may not hold.
        return None
    return None


def _decoded(body: bytes) -> str:
    if len(body) > MOST_BYTES:
        raise InvalidInput(f"the manifest has {len(body)} bytes, expected {MOST_BYTES} or less")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"line {line}: the manifest is not UTF-8 text (byte {error.start})") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidInput(f"line {line}: a NUL character, expected text only")
    if not text.strip():
        raise InvalidInput("the file is empty: expected YAML or JSON")
    return text


def _json(text: str) -> dict[str, Any] | None:
    """Return the mapping in a text that begins with a brace: JSON or else YAML; None if it holds no mapping."""
    _refuse_many_values(text)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return _yaml_or(f"line {error.lineno}, column {error.colno}: no valid JSON ({error.msg})", text)
    except RecursionError:
        raise InvalidInput(f"the manifest is nested deeper than {MOST_DEPTH} levels") from None
    # Only a text with this many brackets or with escapes can hold what the walk looks for.
    if "\\u" in text or text.count("{") + text.count("[") > MOST_DEPTH:
        refuse_odd_values(value)
    return value if isinstance(value, dict) else None


def _refuse_many_values(text: str) -> None:
    """Refuse JSON of too many values without decoding it: each follows a bracket or a comma, or a key that does."""
    if _most_values(text) > MOST_VALUES and _most_values(_STRING.sub("", text)) > MOST_VALUES:
        raise InvalidInput(f"the manifest holds more than {MOST_VALUES} values")


def _most_values(text: str) -> int:
    return text.count(",") + text.count("{") + text.count("[")


def _yaml_or(complaint: str, text: str) -> dict[str, Any] | None:
    """Read what begins with a brace as YAML, and complain about the JSON where that fails too."""
    try:
        value = yaml_text.read(text)
    except yaml_text.NotYaml:
        raise InvalidInput(complaint) from None
    if not isinstance(value, dict):
        raise InvalidInput(complaint)
    return value


class _RepeatedKey(InvalidInput):
    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} occurs twice in one mapping: keep one of them")
        self.key = key


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedKey(key[:80])
            seen.add(key)
    return found


def _whole(digits: str) -> int:
    if len(digits) > 20 or not SMALLEST_INT <= (value := int(digits)) <= BIGGEST_INT:
        raise InvalidInput(f"the number {digits[:30]} is too big: expected 64 bits")
    return value


def _fraction(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InvalidInput(f"the number {digits[:30]} is too big")
    return value


def _constant(name: str) -> NoReturn:
    raise InvalidInput(f"{name} is not a number that JSON knows: leave it out or quote it")


_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_whole, parse_float=_fraction, parse_constant=_constant
)
