"""Files of virtual clusters: HiveD's and ours, and every mistake with its line."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.domain.cells import (
    CellsSpec,
    CellTypeSpec,
    PhysicalCellSpec,
    PhysicalClusterSpec,
    PinSpec,
    QuotaSpec,
    VirtualClusterSpec,
)
from voda.domain.errors import InvalidField, InvalidInput
from voda.manifests.virtual_clusters import read_virtual_clusters, virtual_clusters_yaml

OF_HIVED = b"""\
webServerAddress: ":9096"
waitingPodSchedulingBlockMilliSec: 50
physicalCluster:
  skuTypes:
    K80: {gpu: 1, cpu: 4, memory: 8192Mi}
  cellTypes:
    K80-NODE: {childCellType: K80, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - cellType: K80-NODE
    cellAddress: 10.0.0.1
    pinnedCellId: VC1-K80
  - {cellType: K80-NODE, cellAddress: 10.0.0.2}
virtualClusters:
  VC1:
    virtualCells:
    - {cellType: K80-NODE.K80, cellNumber: 2}
    pinnedCells:
    - pinnedCellId: VC1-K80
"""
OURS = b"""\
pool: a100
virtualClusters:
  vision: {cells: {node: 2}, members: [ada, bob], policy: elastic-srjf}
  speech:
    cells:
      node.gpu: 4
    pins: [dgx]
"""


def test_file_when_it_is_hiveds_is_read_as_it_is_and_what_is_not_voda_s_is_said() -> None:
    file = read_virtual_clusters(OF_HIVED)
    assert file.left_out == ("webServerAddress", "waitingPodSchedulingBlockMilliSec")
    assert file.cells.physical_cluster.physical_cells[0].cell_address == "10.0.0.1"
    assert file.cells.virtual_clusters == {
        "VC1": VirtualClusterSpec(
            virtual_cells=(QuotaSpec(cell_type="K80-NODE.K80", cell_number=2),),
            pinned_cells=(PinSpec(pinned_cell_id="VC1-K80"),),
            members=("*",),
        )
    }


def test_file_when_in_our_words_means_the_same() -> None:
    file = read_virtual_clusters(OURS)
    assert file.pool == "a100"
    assert file.cells.virtual_clusters == {
        "vision": VirtualClusterSpec(
            virtual_cells=(QuotaSpec(cell_type="node", cell_number=2),), members=("ada", "bob"), policy="elastic-srjf"
        ),
        "speech": VirtualClusterSpec(
            virtual_cells=(QuotaSpec(cell_type="node.gpu", cell_number=4),),
            pinned_cells=(PinSpec(pinned_cell_id="dgx"),),
        ),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("pool: a\nvirtualCluster: {}", "line 2: the file has 'virtualCluster', which is unknown: expected pool, phys"),
        (
            "virtualClusters:\n  a: {}\n  b:\n    cells: {node: 1}\n    memberz: [ada]",
            "line 5: virtualClusters.b has 'memberz', which is unknown: expected cells, pins, virtualCells,",
        ),
        (
            "virtualClusters:\n  a: {}\n  b:\n    pinnedCells:\n    - pinnedCellID: x",
            "line 5: virtualClusters.b.pinnedCells[0] has 'pinnedCellID', which is unknown: expected pinnedCellId",
        ),
        (
            "virtualClusters:\n  a: {cells: {node: 1}}\n  b:\n    cells:\n      node: 1\n      rack: -2",
            "line 6: virtualClusters.b.cells.rack: expected `int` >= 0",
        ),
        ("virtualClusters:\n  a: {cells: {node: many}}", "line 2: virtualClusters.a.cells.node: expected `int`, got"),
        ("[a]", "expected a mapping with virtualClusters, got a list"),
        ("# nothing", "the file is empty: expected YAML or JSON"),
        ("virtualClusters: [a]", "line 1: virtualClusters: expected `object`, got `array`"),
        (
            "physicalCluster:\n  physicalCells:\n  - cellType: a\n    pinnedCells: []",
            "line 4: physicalCluster.physicalCells[0] has 'pinnedCells', which is unknown: expected cellType,",
        ),
        (
            "physicalCluster:\n  cellTypes:\n    node:\n      childCellType: gpu",
            "line 3: physicalCluster.cellTypes.node: object missing required field `childCellNumber`",
        ),
        ("virtualClusters:\n  a b: {}", "line 2: virtualClusters.a b: expected 1 to 63 of letters, digits,"),
        ("pool: a b", "pool: expected 1 to 63 of letters"),
        ("virtualClusters:\n  a: {}\n  a: {}", "line 3, column 3: key 'a' occurs twice in one mapping"),
        ('{"\\ud8b8\\udd64": 1}', "the file has '\\U0003e164', which is unknown"),
        ("[]", "expected a mapping"),
        ("a: [", "no valid YAML"),
        ("", "empty"),
    ],
)
def test_file_when_it_is_wrong_is_refused_with_the_line(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_virtual_clusters(text.encode())
    assert sentence in str(refused.value)


def test_file_when_a_key_is_wrong_names_the_field() -> None:
    with pytest.raises(InvalidField) as refused:
        read_virtual_clusters(b"virtualClusters: {a: {quota: 1}}")
    assert refused.value.field == "virtualClusters.a.quota"


WORDS = st.text("abc-019", min_size=1, max_size=5)
NAMES = st.from_regex("[a-z][a-z0-9]{0,4}", fullmatch=True)
CELLS = st.builds(
    CellsSpec,
    physical_cluster=st.builds(
        PhysicalClusterSpec,
        cell_types=st.dictionaries(
            WORDS,
            st.builds(
                CellTypeSpec,
                child_cell_type=WORDS,
                child_cell_number=st.integers(1, 9),
                is_node_level=st.booleans(),
            ),
            max_size=3,
        ),
        physical_cells=st.lists(
            st.recursive(
                st.builds(
                    PhysicalCellSpec,
                    cell_type=WORDS,
                    cell_address=WORDS | st.integers(0, 9),
                    pinned_cell_id=st.just("") | WORDS,
                ),
                lambda below: st.builds(
                    PhysicalCellSpec, cell_type=WORDS, cell_children=st.lists(below, max_size=2).map(tuple)
                ),
                max_leaves=4,
            ),
            max_size=2,
        ).map(tuple),
    ),
    virtual_clusters=st.dictionaries(
        NAMES,
        st.builds(
            VirtualClusterSpec,
            virtual_cells=st.lists(
                st.builds(QuotaSpec, cell_type=WORDS, cell_number=st.integers(0, 9)), max_size=2
            ).map(tuple),
            pinned_cells=st.lists(st.builds(PinSpec, pinned_cell_id=WORDS), max_size=2).map(tuple),
            members=st.lists(WORDS | st.just("*"), max_size=2).map(tuple),
            policy=st.sampled_from(["", "fifo"]),
        ),
        max_size=3,
    ),
)


@given(cells=CELLS, pool=st.just("") | NAMES)
def test_file_when_written_reads_back_the_same(cells: CellsSpec, pool: str) -> None:
    file = read_virtual_clusters(virtual_clusters_yaml(cells, pool).encode())
    assert (file.cells, file.pool) == (cells, pool)


@given(text=st.text(max_size=60))
def test_file_when_it_is_anything_is_read_or_refused_in_a_sentence(text: str) -> None:
    with suppress(InvalidInput):
        assert read_virtual_clusters(text.encode("utf-8", "surrogatepass")).cells == CellsSpec()


def test_files_that_the_docs_show_are_read() -> None:
    text = (Path(__file__).parents[3] / "docs" / "virtual-clusters.md").read_text("utf-8")
    files = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [sorted(read_virtual_clusters(file.encode()).cells.virtual_clusters) for file in files] == [
        ["speech", "vision"],
        ["lab", "vision"],
    ]
