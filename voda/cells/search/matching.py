"""Matching: to each of several cells a candidate of its own, the first in order that lets the others have one too.

Trying every combination would be exponential. Whether a choice leaves the others enough is a question of bipartite
matching, answered by augmenting paths (Kuhn, The Hungarian method for the assignment problem, 1955).
"""

from collections.abc import Sequence


def first_matching(options: Sequence[Sequence[int]]) -> list[int] | None:
    """Return one option for each, all different: of all such lists the first in the order of the options.

    None where there is no such list.
    """
    if not _is_possible(options):
        return None
    fixed: list[Sequence[int]] = [list(each) for each in options]
    for number, choices in enumerate(options):
        for choice in choices:
            fixed[number] = [choice]
            if _is_possible(fixed):
                break
    return [each[0] for each in fixed]


def _is_possible(options: Sequence[Sequence[int]]) -> bool:
    taken: dict[int, int] = {}
    return all(_augment(number, options, taken, set()) for number in range(len(options)))


def _augment(number: int, options: Sequence[Sequence[int]], taken: dict[int, int], tried: set[int]) -> bool:
    """Give an option to one that has none, moving others to other options where that helps."""
    for choice in options[number]:
        if choice in tried:
            continue
        tried.add(choice)
        if choice not in taken or _augment(taken[choice], options, taken, tried):
            taken[choice] = number
            return True
    return False
