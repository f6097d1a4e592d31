"""Claims about clusters written down in short."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.domain.errors import InvalidInput
from voda.simulator.workloads.request import parse_nodes, total_gpus


def test_nodes_when_mixed_are_numbered_through() -> None:
    nodes = parse_nodes("2x8, 1x4")
    assert [(node.name, node.gpus) for node in nodes] == [("node-01", 8), ("node-02", 8), ("node-03", 4)]


def test_names_of_many_nodes_sort_as_their_numbers() -> None:
    names = [node.name for node in parse_nodes("128x8")]
    assert names == sorted(names)
    assert names[0] == "node-001"


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 16)), min_size=1, max_size=4))
def test_nodes_of_any_parts_have_all_their_gpus(parts: list[tuple[int, int]]) -> None:
    nodes = parse_nodes(",".join(f"{count}x{gpus}" for count, gpus in parts))
    assert len({node.name for node in nodes}) == sum(count for count, _ in parts)
    assert total_gpus(nodes) == sum(count * gpus for count, gpus in parts)


@pytest.mark.parametrize(
    "text", ["", "16", "x4", "16x", "0x4", "4x0", "-1x4", "4x4,", "4 x 4", "1e3x4", "999999x4", "4x9999", "١x4"]
)
def test_nodes_when_written_otherwise_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match="such as 16x4"):
        parse_nodes(text)


def test_nodes_when_too_many_in_all_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at most 100000"):
        parse_nodes("60000x1,60000x1")


@given(st.text(alphabet="0129x,X- \n٣", max_size=12))
def test_nodes_of_any_text_are_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        assert parse_nodes(text)
