"""Measured step times of one application of the Pollux paper, over placements and local batch sizes.

Source: the OSDI'21 artifact of AdaptDL, traces/<application>/{placements,scalability}.csv, measured on nodes of four
T4 GPUs. Rule: 1 to 4 nodes are looked up, 5 and more are interpolated between (nodes, replicas, local batch).
"""

import csv
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

GPUS_PER_NODE = 4
"""Of the nodes measured on."""
LARGEST_LOOKED_UP = 4
"""Nodes; the table has every placement on up to so many."""
MOST_NODES = 16
"""Measured; more nodes count as so many."""

Times: TypeAlias = tuple[float, float]
"""Seconds of one step, and of the gradient synchronisation within it."""
Point: TypeAlias = tuple[int, int, int]
"""Nodes, replicas, local batch size."""


class StepTimes:
    def __init__(
        self,
        placements: Mapping[str, Sequence[tuple[int, Times]]],
        points: Mapping[Point, Times],
        interpolated: Mapping[Point, Times] | None = None,
    ) -> None:
        """Keep the measurements: canonical placement -> (local batch size, times), ascending, and points.

        Larger placements are interpolated from `points`, which lie on a grid, so that the triangulation is not unique
        and depends on their order; `interpolated` has precomputed results at some points.
        """
        self._placements = placements
        self._points = points
        self._interpolated = interpolated or {}
        self._interpolate: Callable[[Point], Times] | None = None
        self.at = functools.cache(self._look_up)

    @property
    def local_batches(self) -> tuple[int, int]:
        """Smallest and largest local batch size measured on up to four nodes."""
        sizes = [size for rows in self._placements.values() for size, _ in rows]
        return min(sizes), max(sizes)

    def _look_up(self, per_node: tuple[int, ...], local_batch: int) -> Times:
        """Return the seconds of a step of `local_batch` samples per replica, and of the synchronisation in it.

        Raises:
            ValueError: the placement or the local batch size is outside what was measured.
        """
        if len(per_node) <= LARGEST_LOOKED_UP:
            rows = self._placements.get(balanced(per_node))
            if rows is None:
                raise ValueError(f"placement {per_node} was not measured: expected 1 to {GPUS_PER_NODE} on each node")
            return _between(rows, local_batch)
        point = (min(len(per_node), MOST_NODES), sum(per_node), local_batch)
        if (times := self._interpolated.get(point)) is not None:
            return times
        if self._interpolate is None:
            self._interpolate = _triangulated(self._points)
        return self._interpolate(point)


def balanced(per_node: tuple[int, ...]) -> str:
    """Return the lexicographically smallest rotation as digits: (3, 2, 1) -> "132"."""
    digits = "".join(map(str, per_node))
    return min(digits[i:] + digits[:i] for i in range(len(digits)))


def load_step_times(folder: Path, interpolated: Mapping[Point, Times] | None = None) -> StepTimes:
    """Read placements.csv and scalability.csv of one application; see `StepTimes` for `interpolated`."""
    placements: dict[str, list[tuple[int, Times]]] = {}
    groups: dict[Point, list[Times]] = {}
    for row in read_rows(folder / "placements.csv"):
        digits, size, times = row["placement"], int(row["local_bsz"]), _times(row)
        placements.setdefault(digits, []).append((size, times))
        groups.setdefault((len(digits), sum(map(int, digits)), size), []).append(times)
    points = {point: _mean(groups[point]) for point in sorted(groups)}
    points.update((_point(row), _times(row)) for row in read_rows(folder / "scalability.csv"))
    return StepTimes({digits: sorted(rows) for digits, rows in placements.items()}, points, interpolated)


@functools.lru_cache(maxsize=2)
def load_interpolated(path: Path) -> Mapping[str, Mapping[Point, Times]]:
    """Read application -> interpolated step times from a table; nothing where there is none.

    With it a run need not import scipy and triangulate; the figures are the same.
    """
    applications: dict[str, dict[Point, Times]] = {}
    for row in read_rows(path) if path.is_file() else ():
        applications.setdefault(row["application"], {})[_point(row)] = _times(row)
    return applications


def read_rows(path: Path) -> Sequence[dict[str, str]]:
    """Return the rows of a CSV file with a header."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _point(row: Mapping[str, str]) -> Point:
    return int(row["num_nodes"]), int(row["num_replicas"]), int(row["local_bsz"])


def _times(row: Mapping[str, str]) -> Times:
    return float(row["step_time"]), float(row["sync_time"])


def _mean(several: Sequence[Times]) -> Times:
    return sum(step for step, _ in several) / len(several), sum(sync for _, sync in several) / len(several)


def _between(rows: Sequence[tuple[int, Times]], local_batch: int) -> Times:
    for (low, at_low), (high, at_high) in itertools.pairwise(rows):
        if low <= local_batch <= high:
            share = (local_batch - low) / (high - low)
            return at_low[0] + share * (at_high[0] - at_low[0]), at_low[1] + share * (at_high[1] - at_low[1])
    raise ValueError(f"local batch {local_batch} was not measured: expected {rows[0][0]} to {rows[-1][0]}")


def _triangulated(points: Mapping[Point, Times]) -> Callable[[Point], Times]:
    # Imported here: scipy takes long to import, and most runs on few nodes do not need it.
    from scipy.interpolate import LinearNDInterpolator

    interpolator = LinearNDInterpolator(list(points), list(points.values()))

    def at(point: Point) -> Times:
        step, sync = map(float, interpolator([point])[0])
        if math.isnan(step):
            raise ValueError(f"(nodes, replicas, local batch) {point} lies outside what was measured")
        return step, sync

    return at
