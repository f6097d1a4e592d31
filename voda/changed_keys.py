"""Which keys have changed: since a count that somebody remembers, or between two mappings. Pure."""

from collections.abc import Collection, Mapping
from itertools import compress
from operator import is_not
from typing import Final, TypeVar

T = TypeVar("T")
_REMEMBERED: Final = 16_384
"""Keys: those that changed longest ago are forgotten, for many are of what is gone."""


class ChangedKeys:
    """Keys in the order in which something about them changed last.

    Asking costs as much as there are answers, however many keys there are.
    """

    def __init__(self, *, remembered: int = _REMEMBERED) -> None:
        self.count = 0
        """Of all changes."""
        self._remembered = remembered
        self._at: dict[str, int] = {}
        """Key -> the count of its last change; the latest at the end."""
        self._forgotten = 0
        """The count of the latest change that is forgotten."""

    def add(self, key: str) -> None:
        """Take note that something about a key has changed."""
        self.count += 1
        self._at.pop(key, None)
        self._at[key] = self.count
        if len(self._at) > self._remembered:
            self._forgotten = self._at.pop(next(iter(self._at)))

    def has_changed(self, key: str, count: int) -> bool:
        """Return whether a key may have changed after so many changes; O(1)."""
        return self._at.get(key, self._forgotten) > count

    def since(self, count: int) -> list[str] | None:
        """Return the keys that changed after so many changes, the latest first; None: any may have, it is long ago."""
        if count < self._forgotten:
            return None
        found = []
        for key in reversed(self._at):
            if self._at[key] <= count:
                break
            found.append(key)
        return found


def other_keys(old: Mapping[str, T], new: Mapping[str, T]) -> list[str]:
    """Return the keys of `new`, in their order, of which `old` has another object, or none."""
    return list(compress(new, map(is_not, new.values(), map(old.get, new))))


def gone_keys(old: Mapping[str, T], new: Mapping[str, T], others: Collection[str]) -> list[str]:
    """Return the keys of `old` that `new` has no longer; `others`: what `other_keys` says of both."""
    if len(old) + sum(key not in old for key in others) == len(new):
        return []
    return [key for key in old if key not in new]
