"""The rows (lanes) of a node on which a chart draws a job.

Rule: the log says how many GPUs of a node a job held, not which; a job keeps its lanes while it can.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from msgspec import Struct

from voda.projections.timeline import Segment


class Bar(Struct, frozen=True):
    """A job on `height` neighbouring lanes of a node."""

    job_id: str
    node: str
    lane: int
    height: int
    from_s: float
    to_s: float


class _Lanes:
    """The lanes of one node; segments take them in the order of their begin."""

    def __init__(self, gpus: int) -> None:
        self._free_from = [float("-inf")] * gpus
        self._job = [""] * gpus

    def take(self, segment: Segment) -> Sequence[int]:
        """Occupy lanes for a segment; where too few are free, the node gets more."""
        while len(free := self._free_at(segment.from_s)) < segment.gpus:
            self._free_from.append(float("-inf"))
            self._job.append("")
        chosen = _choose(free, self._lanes_of(segment), segment.gpus)
        for lane in chosen:
            self._free_from[lane], self._job[lane] = segment.to_s, segment.job_id
        return chosen

    def continues(self, segment: Segment) -> bool:
        """Whether the job was here until the segment begins."""
        return bool(self._lanes_of(segment))

    def _lanes_of(self, segment: Segment) -> list[int]:
        pairs = enumerate(zip(self._free_from, self._job, strict=True))
        return [lane for lane, (until, job_id) in pairs if until == segment.from_s and job_id == segment.job_id]

    def _free_at(self, instant: float) -> list[int]:
        return [lane for lane, until in enumerate(self._free_from) if until <= instant]


def assign_lanes(segments: Iterable[Segment], sizes: Mapping[str, int]) -> list[Bar]:
    """Return the bars that draw the segments, node by node in the order of `sizes` (node -> GPUs); other nodes last."""
    by_node: dict[str, list[Segment]] = {node: [] for node in sizes}
    for segment in segments:
        by_node.setdefault(segment.node, []).append(segment)
    return [bar for node, held in by_node.items() for bar in _lay_node(held, sizes.get(node, 0))]


def _lay_node(segments: list[Segment], gpus: int) -> Iterable[Bar]:
    lanes = _Lanes(gpus)
    for _, together in groupby(sorted(segments, key=attrgetter("from_s")), key=attrgetter("from_s")):
        # Jobs that stay choose first, so that a new one does not take their lanes.
        for segment in sorted(together, key=lanes.continues, reverse=True):
            for lane, height in _runs(lanes.take(segment)):
                yield Bar(segment.job_id, segment.node, lane, height, segment.from_s, segment.to_s)


def _choose(free: Sequence[int], present: Sequence[int], count: int) -> Sequence[int]:
    """Prefer the present lanes, then neighbouring ones, then the lowest."""
    if not present:
        for lane, height in _runs(free):
            if height >= count:
                return range(lane, lane + count)
    chosen = list(present[:count])
    chosen += [lane for lane in free if lane not in chosen][: count - len(chosen)]
    return sorted(chosen)


def _runs(lanes: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending lanes as (first, number) of neighbours."""
    runs: list[tuple[int, int]] = []
    for lane in lanes:
        if runs and sum(runs[-1]) == lane:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return runs
