"""On which GPU a job's share of a node is drawn."""

import base64
import struct
import zlib
from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from voda.projections.timeline import Segment
from voda.simulator.report.gantt import Bar, assign_lanes, data_uri, edges, mean_per_bin, occupancy


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


def test_mean_of_a_bin_is_weighted_by_time() -> None:
    means = mean_per_bin(np.array([5.0, 12.0]), np.array([4.0, 1.0]), edges(0, 30, 3))
    assert means.tolist() == [2.0, (4 * 2 + 1 * 8) / 10, 1.0]


def test_nothing_that_ever_happened_is_nothing_in_every_bin() -> None:
    assert mean_per_bin(np.zeros(0), np.zeros(0), edges(0, 1, 4)).tolist() == [0, 0, 0, 0]


def test_occupancy_is_the_share_of_each_nodes_gpus() -> None:
    segments = [Segment("a", "n1", 2, 0, 10), Segment("b", "n1", 2, 5, 10), Segment("a", "n2", 1, 10, 20)]
    assert occupancy(segments, {"n1": 4, "n2": 1, "n3": 8}, edges(0, 20, 2)).tolist() == [[0.75, 0], [0, 1], [0, 0]]


def test_image_holds_a_row_per_node_and_a_level_per_share() -> None:
    png = base64.b64decode(data_uri(np.array([[0.0, 0.5, 1.0]]), (1, 2, 3)).partition("base64,")[2])
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">II", png[16:24]) == (3, 1)
    begin = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[begin - 4 : begin])
    assert zlib.decompress(png[begin + 4 : begin + 4 + length]) == bytes([0, 0, 128, 255])
