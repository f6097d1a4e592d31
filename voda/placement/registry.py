"""The placers there are; one file each, no list to edit."""

from collections.abc import Mapping
from functools import cache

from voda import placement
from voda.domain.plugins import chosen, classes_with
from voda.placement.base import Placer


@cache
def placers() -> Mapping[str, Placer]:
    """Return all placers by name, sorted."""
    return {name: part() for name, part in classes_with("place", placement).items()}


def placer(name: str) -> Placer:
    """Return the placer of that name.

    Raises:
        InvalidInput: there is none of that name.
    """
    return chosen(name, placers(), what="placer")
