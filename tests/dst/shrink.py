"""The shortest story: the same rule broken with as few faults and acts as can be found.

Rule: what is left out is never put back (delta debugging, Zeller and Hildebrandt 2002, "Simplifying and Isolating
Failure-Inducing Input"); a story that breaks another rule is another story.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tests.dst.faults import Fault
from tests.dst.trial import Trial, Verdict
from tests.dst.users import Act

Part = TypeVar("Part")


def shrunk(
    trial: Trial, verdict: Verdict, run: Callable[[Trial], Verdict], *, most_runs: int = 200
) -> tuple[Trial, Verdict]:
    """Return the shortest trial found that breaks the same rule, and its verdict.

    Args:
        trial: broke a rule.
        verdict: of the trial.
        run: runs a trial.
        most_runs: to be made in all.
    """
    best = (trial, verdict)
    left = most_runs

    def breaks(faults: Sequence[Fault], acts: Sequence[Act]) -> bool:
        nonlocal best, left
        if left <= 0:
            return False
        left -= 1
        candidate = Trial(setup=replace(best[0].setup, faults=tuple(faults)), acts=tuple(acts))
        found = run(candidate)
        if found.rule != verdict.rule:
            return False
        best = (candidate, found)
        return True

    # What was drawn for later has not happened yet. A liveness rule is broken at the very end: it keeps all.
    at_s = verdict.at_s
    breaks(
        [fault for fault in trial.setup.faults if fault.at_s <= at_s],
        [act for act in trial.acts if act.at_s <= at_s],
    )
    size = -1
    while size != (size := len(best[0].setup.faults) + len(best[0].acts)) and left > 0:
        _fewest(best[0].acts, lambda acts: breaks(best[0].setup.faults, acts))
        _fewest(best[0].setup.faults, lambda faults: breaks(faults, best[0].acts))
    _milder(best[0].setup.faults, lambda faults: breaks(faults, best[0].acts))
    return best


def _fewest(parts: Sequence[Part], breaks: Callable[[Sequence[Part]], bool]) -> Sequence[Part]:
    """Leave out as much as possible: halves first, single parts in the end."""
    if parts and breaks([]):
        return []
    chunk = max(1, len(parts) // 2)
    while parts:
        first = 0
        while first < len(parts):
            fewer = [*parts[:first], *parts[first + chunk :]]
            if fewer and breaks(fewer):
                parts = fewer
            else:
                first += chunk
        if chunk == 1:
            break
        chunk = max(1, chunk // 2)
    return parts


def _milder(faults: Sequence[Fault], breaks: Callable[[Sequence[Fault]], bool]) -> None:
    """Let each window be a quarter as long, if that is enough."""
    kept = list(faults)
    for number, fault in enumerate(kept):
        shorter = replace(fault, span_s=round(fault.span_s / 4, 3))
        if fault.span_s > 0 and breaks([*kept[:number], shorter, *kept[number + 1 :]]):
            kept[number] = shorter
