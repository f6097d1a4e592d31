"""Step functions of time, averaged over bins, and as an image."""

import base64
import struct
import zlib

import numpy as np

from voda.projections.timeline import Segment
from voda.simulator.report.gantt import data_uri, edges, mean_per_bin, occupancy


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
