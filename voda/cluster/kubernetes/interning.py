"""Keeps equal parts of objects once: ten thousand pods tolerate the same taints and request the same GPUs.

Rule: the memory is bounded, for names and messages are endless; what was kept is never changed.
"""

from collections.abc import Hashable, Mapping
from sys import intern
from typing import Final, TypeVar, cast

H = TypeVar("H", bound=Hashable)
V = TypeVar("V")
_MOST: Final = 8192
_known: dict[Hashable, object] = {}


def intern_value(part: H) -> H:
    """Return the first part that was equal to this one."""
    return cast(H, _first(part, part))


def intern_mapping(part: Mapping[str, V]) -> Mapping[str, V]:
    """Return the first mapping that had the same items in the same order; of what can be hashed."""
    return cast(Mapping[str, V], _first(tuple(part.items()), part))


def intern_strings(part: Mapping[str, str]) -> Mapping[str, str]:
    """Return a mapping with keys and values that are kept once, for mappings of which hardly two are equal."""
    return {intern(key): intern(value) for key, value in part.items()} if part else intern_mapping(part)


def _first(name: Hashable, part: object) -> object:
    # The items of an empty mapping equal an empty tuple.
    key = (type(part), name)
    found = _known.get(key)
    if found is not None:
        return found
    if len(_known) >= _MOST:
        _known.clear()
    _known[key] = part
    return part
