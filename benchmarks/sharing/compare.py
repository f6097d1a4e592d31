"""Several raters on several orders of one list, and the means of each rater."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.sharing.experiment import LoadPoint, OnArrival, SharingRun, simulate
from benchmarks.sharing.openb import OpenbList
from voda.clock import stopwatch
from voda.domain.errors import InvalidInput
from voda.sharing.rating.raters import Rater

_MOST_SEEDS = 1_000


class RaterMeans(Struct, frozen=True, kw_only=True):
    """The means of one rater over all seeds."""

    rater: str
    points: Sequence[LoadPoint]
    """At the loads that every run reached."""
    placements_per_s: float

    def at(self, load: int) -> LoadPoint:
        """Return the figures at a load, or at the last one before it."""
        return next(point for point in reversed(self.points) if point.load <= load)


def parse_seeds(text: str) -> Sequence[int]:
    """Return the seeds of a list of numbers and ranges: "42-51", "1,2,7".

    Raises:
        InvalidInput: it has another format, or too many seeds.
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first) > 9 or len(last) > 9:
            raise InvalidInput(f"seeds {text[:60]!r}: {part[:20]!r} is no number and no range such as 42-51")
        span = range(int(first), int(last or first) + 1)
        if not span or len(seeds) + len(span) > _MOST_SEEDS:
            raise InvalidInput(f"seeds {text[:60]!r}: expected 1 to {_MOST_SEEDS} seeds, ranges from low to high")
        seeds += span
    return list(dict.fromkeys(seeds))


def compare(
    workload: OpenbList,
    raters: Sequence[Rater],
    seeds: Sequence[int],
    *,
    progress: Callable[[str, int], OnArrival] | None = None,
) -> Sequence[SharingRun]:
    """Run every rater on every seed; `progress` takes rater and seed and makes the callback of a run."""
    runs = []
    for rater in raters:
        for seed in seeds:
            seconds: list[float] = []
            with stopwatch(seconds):
                run = simulate(workload, rater, seed, on_arrival=progress(rater.name, seed) if progress else None)
            runs.append(replace(run, seconds=seconds[0]))
    return runs


def means(runs: Sequence[SharingRun]) -> Sequence[RaterMeans]:
    """Return the means of each rater, in the order of the runs."""
    by_rater: dict[str, list[SharingRun]] = defaultdict(list)
    for run in runs:
        by_rater[run.rater].append(run)
    return [_means(rater, its_runs) for rater, its_runs in by_rater.items()]


def _means(rater: str, runs: Sequence[SharingRun]) -> RaterMeans:
    loads = sorted(set.intersection(*({point.load for point in run.points} for run in runs)))
    points = [
        LoadPoint(
            load=load,
            unallocated=fmean(run.at(load).unallocated for run in runs),
            fragment=fmean(run.at(load).fragment for run in runs),
        )
        for load in loads
    ]
    arrived = sum(run.placed + run.dropped for run in runs)
    return RaterMeans(
        rater=rater, points=points, placements_per_s=arrived / max(sum(run.seconds for run in runs), 1e-9)
    )
