"""On which GPU a job's share of a node is drawn."""

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given

from voda.projections.timeline import Segment
from voda.simulator.report.lanes import Bar, assign_lanes


def test_jobs_of_one_instant_lie_side_by_side() -> None:
    segments = [Segment("a", "n1", 2, 0, 9), Segment("b", "n1", 1, 0, 9)]
    assert assign_lanes(segments, {"n1": 4}) == [Bar("a", "n1", 0, 2, 0, 9), Bar("b", "n1", 2, 1, 0, 9)]


def test_job_that_grows_keeps_its_lanes_while_a_newcomer_takes_others() -> None:
    segments = [
        Segment("a", "n1", 1, 0, 5),
        Segment("b", "n1", 1, 0, 5),
        Segment("c", "n1", 1, 5, 9),
        Segment("b", "n1", 2, 5, 9),
    ]
    bars = assign_lanes(segments, {"n1": 4})
    assert Bar("b", "n1", 0, 2, 5, 9) in bars
    assert Bar("c", "n1", 2, 1, 5, 9) in bars


def test_newcomer_takes_neighbouring_lanes_where_it_can() -> None:
    segments = [
        Segment("a", "n1", 1, 0, 9),
        Segment("b", "n1", 1, 0, 5),
        Segment("c", "n1", 1, 0, 9),
        Segment("d", "n1", 1, 0, 6),
        Segment("e", "n1", 1, 0, 6),
        Segment("f", "n1", 2, 6, 9),
    ]
    assert Bar("f", "n1", 3, 2, 6, 9) in assign_lanes(segments, {"n1": 5})


def test_node_grows_where_more_is_held_than_it_has() -> None:
    assert assign_lanes([Segment("a", "n9", 3, 0, 1)], {"n1": 4}) == [Bar("a", "n9", 0, 3, 0, 1)]


@st.composite
def tenures(draw: st.DrawFn) -> Sequence[Segment]:
    """Segments of one node, of any overlap."""
    begins = draw(st.lists(st.integers(0, 20), max_size=12))
    return [
        Segment(draw(st.sampled_from("abcd")), "n1", draw(st.integers(1, 3)), begin, begin + draw(st.integers(1, 9)))
        for begin in begins
    ]


@given(tenures())
def test_no_two_bars_overlap_and_none_is_lost(segments: Sequence[Segment]) -> None:
    bars = assign_lanes(segments, {"n1": 2})
    held = sum(segment.gpus * (segment.to_s - segment.from_s) for segment in segments)
    assert sum(bar.height * (bar.to_s - bar.from_s) for bar in bars) == held
    for i, one in enumerate(bars):
        for other in bars[i + 1 :]:
            in_time = one.from_s < other.to_s and other.from_s < one.to_s
            in_lanes = one.lane < other.lane + other.height and other.lane < one.lane + one.height
            assert not (in_time and in_lanes)
