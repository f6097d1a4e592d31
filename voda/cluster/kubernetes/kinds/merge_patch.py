"""JSON merge patches (RFC 7386): the difference between two objects, and its application. Pure.

Rule: a list is replaced whole, so a patch always carries complete lists.
"""

from collections.abc import Mapping
from typing import Any


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns `before` into `after`; empty where they are alike.

    A value that is None counts as absent: a merge patch cannot write one.
    """
    patch: dict[str, Any] = {name: None for name, value in before.items() if value is not None and name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := difference(old, value):
                patch[name] = inner
        elif value != old or type(value) is not type(old):
            patch[name] = value
    return patch


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
