"""What is not the very same object in two mappings: in two states of a pool nearly everything is. Pure."""

from collections.abc import Mapping
from itertools import compress
from operator import is_not
from typing import TypeVar

T = TypeVar("T")


def other_keys(old: Mapping[str, T], new: Mapping[str, T]) -> list[str]:
    """Return the keys of `new`, in their order, of which `old` has another object, or none."""
    return list(compress(new, map(is_not, new.values(), map(old.get, new))))
