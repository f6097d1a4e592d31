"""JSON merge patches (RFC 7386), as an API server applies them."""

from collections.abc import Mapping
from typing import Any


def apply_patch(into: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as the API server has it after a merge patch."""
    found = dict(into)
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, Mapping):
            old = found.get(name)
            found[name] = apply_patch(old if isinstance(old, Mapping) else {}, value)
        else:
            found[name] = value
    return found
