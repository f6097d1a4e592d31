"""Answers found by trying everything."""

from collections.abc import Sequence


def can_be_packed(sizes: Sequence[int], rooms: Sequence[int]) -> bool:
    """Return whether workers of these sizes fit on nodes with so much room."""
    if not sizes:
        return True
    return any(
        can_be_packed(sizes[:-1], [*rooms[:i], room - sizes[-1], *rooms[i + 1 :]])
        for i, room in enumerate(rooms)
        if room >= sizes[-1]
    )
