"""From a raw mapping to a typed manifest, and the message about a field of the wrong type.

Rule: the path in a message leads to the value that is wrong, and says what was expected, what was there and what to
write instead; values are cut short.
"""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from voda.domain.errors import InvalidField, closest
from voda.kinds.base import JobManifest
from voda.kinds.registry import KINDS

_STEP = re.compile(r"\.([A-Za-z0-9_]+)|\[(\d+)\]|(\[\.\.\.\])")
_MOST_COMPARED = 100
_TYPES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def typed_manifest(manifest: Mapping[str, Any]) -> JobManifest:
    """Return the typed view of a manifest; to be made once and handed on.

    Raises:
        InvalidField: another kind or version, or a field that is missing or of the wrong type.
    """
    name = manifest.get("kind")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        # TFJob is another kind, not a Job with two letters too many.
        close = closest(str(name), KINDS, alike=0.8)
        advice = f": did you mean {close}?" if close else ""
        raise InvalidField("kind", f"kind: expected one of {', '.join(KINDS)}, got {_or_none(name)}{advice}")
    version = manifest.get("apiVersion")
    if version not in kind.versions:
        expected = " or ".join(kind.versions)
        raise InvalidField("apiVersion", f"apiVersion of kind {name}: expected {expected}, got {_or_none(version)}")
    try:
        return msgspec.convert(manifest, kind)
    except msgspec.ValidationError as error:
        raise type_error(manifest, str(error)) from None


def type_error(manifest: Mapping[str, Any], report: str) -> InvalidField:
    """Return the error for the user from what msgspec reports about a manifest."""
    complaint, _, where = report.partition(" - at ")
    path, value = _walked(manifest, where)
    if missing := re.search(r"missing required field `(\w+)`", complaint):
        field = f"{path}.{missing[1]}" if path else missing[1]
        close = closest(missing[1], _some_keys(value))
        advice = f", and {close} is unknown: did you mean {missing[1]}?" if close else ": add it"
        return InvalidField(field, f"{field} is missing{advice}")
    if "key" in where:
        return InvalidField(path, f"{path or 'the manifest'}: expected keys that are strings, got others: quote them")
    if "of length" in complaint:
        return InvalidField(path, f"{path}: expected at least one, got none")
    expected = _expected(complaint)
    advice = _advice(expected, value)
    return InvalidField(path, f"{path or 'the manifest'}: expected {expected}, got {_brief(value)}{advice}")


def _some_keys(value: object) -> list[str]:
    """Return as many keys of a mapping as may be compared with others at leisure."""
    keys = islice(value, _MOST_COMPARED) if isinstance(value, Mapping) else ()
    return [key for key in keys if isinstance(key, str) and len(key) < _MOST_COMPARED]


def _advice(expected: str, value: object) -> str:
    if expected.startswith("a string") and isinstance(value, int | float):
        return ": quote it"
    if expected == "a whole number" and isinstance(value, str) and value.strip().isdecimal():
        return ": write it without quotes"
    return ""


def _brief(value: object) -> str:
    """Return a value as a user wrote it, cut short; collections by what they are."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _expected(complaint: str) -> str:
    found = re.search(r"Expected `([^`]*)`", complaint)
    names = [name for name in (found[1] if found else "").split(" | ") if name != "null"]
    if "int" in names and "float" in names:
        names.remove("int")
    return " or ".join(_TYPES.get(name, name) for name in reversed(names)) or "something else"


def _walked(manifest: object, where: str) -> tuple[str, object]:
    """Follow the decoder's path; where it says only that some value of a mapping is wrong, find the first one."""
    path, value = "", manifest
    for name, index, any_value in _STEP.findall(where):
        if any_value:
            key, value = _first_odd(value)
            path = f"{path}[{key}]"
        elif index:
            path, value = f"{path}[{index}]", value[int(index)] if isinstance(value, list | tuple) else None
        else:
            path, value = (f"{path}.{name}" if path else name), value.get(name) if isinstance(value, Mapping) else None
    return path, value


def _first_odd(value: object) -> tuple[str, object]:
    """Return the first pair of a mapping of strings whose value is none; quantities may be numbers too."""
    pairs = list(value.items()) if isinstance(value, Mapping) else []
    for allowed in ((str, int, float), (str,)):
        for key, item in pairs:
            if isinstance(item, bool) or not isinstance(item, allowed):
                return str(key)[:80], item
    return "...", None


def _or_none(value: object) -> str:
    return "none" if value is None else repr(value)[:80]
