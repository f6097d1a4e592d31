"""Which GPU of a node a job's share of it is drawn on.

The log tells how many GPUs a job held on a node, not which; a job keeps its lanes for as long as it can.
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
    """The lanes of one node while its segments are laid, in the order of their begin."""

    def __init__(self, gpus: int) -> None:
        self._free_from = [float("-inf")] * gpus
        self._tenant = [""] * gpus

    def take(self, segment: Segment) -> Sequence[int]:
        """Occupy lanes for a segment; where too few are free, the node grows."""
        while len(free := self._free_at(segment.from_s)) < segment.gpus:
            self._free_from.append(float("-inf"))
            self._tenant.append("")
        chosen = _choose(free, self._kept(segment), segment.gpus)
        for lane in chosen:
            self._free_from[lane], self._tenant[lane] = segment.to_s, segment.job_id
        return chosen

    def continues(self, segment: Segment) -> bool:
        """Whether the job was here until the segment begins."""
        return bool(self._kept(segment))

    def _kept(self, segment: Segment) -> list[int]:
        pairs = enumerate(zip(self._free_from, self._tenant, strict=True))
        return [lane for lane, (until, tenant) in pairs if until == segment.from_s and tenant == segment.job_id]

    def _free_at(self, instant: float) -> list[int]:
        return [lane for lane, until in enumerate(self._free_from) if until <= instant]


def assign_lanes(segments: Iterable[Segment], sizes: Mapping[str, int]) -> list[Bar]:
    """Return the bars that draw the segments, node by node in the order of `sizes`.

    Args:
        segments: in any order; a node never mentioned in `sizes` comes last.
        sizes: node -> GPUs.
    """
    by_node: dict[str, list[Segment]] = {node: [] for node in sizes}
    for segment in segments:
        by_node.setdefault(segment.node, []).append(segment)
    return [bar for node, held in by_node.items() for bar in _lay_node(held, sizes.get(node, 0))]


def _lay_node(segments: list[Segment], gpus: int) -> Iterable[Bar]:
    lanes = _Lanes(gpus)
    for _, together in groupby(sorted(segments, key=attrgetter("from_s")), key=attrgetter("from_s")):
        # Whoever stays chooses first, so that a newcomer does not push it aside.
        for segment in sorted(together, key=lanes.continues, reverse=True):
            for lane, height in _runs(lanes.take(segment)):
                yield Bar(segment.job_id, segment.node, lane, height, segment.from_s, segment.to_s)


def _choose(free: Sequence[int], kept: Sequence[int], count: int) -> Sequence[int]:
    """Prefer the lanes kept, then neighbouring ones, then the lowest."""
    if not kept:
        for lane, height in _runs(free):
            if height >= count:
                return range(lane, lane + count)
    chosen = list(kept[:count])
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
