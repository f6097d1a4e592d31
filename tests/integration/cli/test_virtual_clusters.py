"""`voda vc` and `voda submit --vc`, against the real API."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.served import Server, served
from tests.service import a_manifest
from voda.domain.errors import InvalidInput, NotFound, PermanentError

TWO_TEAMS = """\
virtualClusters:
  vision: {cells: {node: 2}, members: [ada, admin]}
  speech: {cells: {node.gpu: 4}, members: [bob], policy: elastic-srjf}
"""
OF_HIVED = """\
kubeApiServerAddress: http://10.10.10.10:8080
physicalCluster:
  cellTypes:
    K80-NODE: {childCellType: K80, childCellNumber: 8, isNodeLevel: true}
    M60-NODE: {childCellType: M60, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: K80-NODE, cellAddress: n1, pinnedCellId: VC1-PIN}
  - {cellType: K80-NODE, cellAddress: n2}
  - {cellType: M60-NODE, cellAddress: m1}
virtualClusters:
  VC1:
    virtualCells: [{cellType: K80-NODE, cellNumber: 1}, {cellType: M60-NODE.M60, cellNumber: 2}]
    pinnedCells: [{pinnedCellId: VC1-PIN}]
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Server]:
    """A server with three nodes of eight GPUs."""
    with served(tmp_path, nodes={"n1": 8, "n2": 8, "n3": 8}) as server:
        yield server


def written(folder: Path, text: str) -> str:
    file = folder / "virtual-clusters.yaml"
    file.write_text(text)
    return str(file)


def test_virtual_clusters_when_applied_are_listed_and_described(nodes: Server, tmp_path: Path) -> None:
    assert "no pool has virtual clusters" in nodes.voda("vc", "list").stdout
    file = written(tmp_path, TWO_TEAMS)
    assert nodes.voda("vc", "apply", file, "--dry-run").stdout.splitlines() == [
        "pool default, dry run: these would change",
        "  default: 0 -> 4 node.gpu",
        "  speech: 0 -> 4 node.gpu",
        "  vision: 0 -> 2 node",
    ]
    assert nodes.voda("vc", "apply", file).stdout.splitlines()[0] == "pool default: applied as revision 1"
    assert nodes.voda("vc", "apply", file).stdout == "pool default: it is so already\n"
    assert [line.split() for line in nodes.voda("vc", "list").stdout.splitlines()] == [
        ["NAME", "POOL", "CELLS", "GPUS", "USED", "IDLE", "BORROWED", "JOBS", "MEMBERS"],
        ["vision", "default", "2", "node", "16", "0", "16", "0", "0", "ada,", "admin"],
        ["speech", "default", "4", "node.gpu", "4", "0", "4", "0", "0", "bob"],
        ["default", "default", "4", "node.gpu", "4", "0", "4", "0", "0", "everybody"],
    ]
    shown = nodes.voda("vc", "describe", "speech").stdout
    assert "Members:         bob" in shown
    assert "Policy:          elastic-srjf" in shown
    assert shown.splitlines()[-1].split() == ["node.gpu", "4", "0", "0", "4", "0"]
    assert nodes.voda("vc", "list", "-o", "name").stdout.split() == ["vision", "speech", "default"]
    assert msgspec.json.decode(nodes.voda("vc", "describe", "vision", "-o", "json").stdout)["revision"] == 1
    with pytest.raises(NotFound, match=r"'audio' is not known\. Known: vision, speech, default"):
        nodes.voda("vc", "describe", "audio")


def test_policy_of_a_virtual_cluster_is_shown_and_changed(nodes: Server, tmp_path: Path) -> None:
    nodes.voda("vc", "apply", written(tmp_path, TWO_TEAMS))
    exported = nodes.voda("vc", "export").stdout
    before = "virtual cluster vision of pool default: policy elastic-fifo\n"
    assert nodes.voda("settings", "--vc", "vision").stdout == before
    assert nodes.voda("settings", "--vc", "vision", "--policy", "ffdl").stdout == (
        "virtual cluster vision of pool default: policy elastic-fifo -> ffdl\n"
    )
    assert nodes.voda("settings", "--vc", "vision", "--policy", "").stdout.endswith("ffdl -> elastic-fifo\n")
    assert nodes.voda("vc", "apply", "-", input=exported).stdout == "pool default: it is so already\n"
    assert nodes.voda("settings", "--vc", "default", "--policy", "ffdl").stdout.endswith("elastic-fifo -> ffdl\n")
    shown = {line.split()[0]: line.split()[2:4] for line in nodes.voda("vc", "list").stdout.splitlines()[1:]}
    assert shown == {"vision": ["2", "node"], "speech": ["4", "node.gpu"], "default": ["4", "node.gpu"]}
    with pytest.raises(InvalidInput, match="but ratelimit_s of its pool only"):
        nodes.voda("settings", "--vc", "vision", "--ratelimit", "3")
    with pytest.raises(InvalidInput, match=r"virtualClusters\.vision\.policy"):
        nodes.voda("settings", "--vc", "vision", "--policy", "elastic-fivo")
    with pytest.raises(NotFound, match="'audio' is not known"):
        nodes.voda("settings", "--vc", "audio", "--policy", "ffdl")


def test_virtual_clusters_when_exported_are_applied_again_without_a_change(nodes: Server, tmp_path: Path) -> None:
    nodes.voda("vc", "apply", written(tmp_path, TWO_TEAMS))
    exported = nodes.voda("vc", "export").stdout
    assert "pool: default" in exported
    assert nodes.voda("vc", "apply", "-", input=exported).stdout == "pool default: it is so already\n"


def test_file_when_it_is_wrong_or_stale_is_refused_in_a_sentence(nodes: Server, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"line 2: virtualClusters\.vision has 'cell', which is unknown"):
        nodes.voda("vc", "apply", written(tmp_path, "virtualClusters:\n  vision: {cell: 1}"))
    with pytest.raises(InvalidInput, match="there is no such file"):
        nodes.voda("vc", "apply", str(tmp_path / "none.yaml"))
    file = written(tmp_path, TWO_TEAMS)
    nodes.voda("vc", "apply", file, "--revision", "0")
    with pytest.raises(PermanentError, match="at revision 1 now"):
        nodes.voda("vc", "apply", file, "--revision", "0")


def test_configuration_of_hived_when_imported_leaves_out_what_is_not_voda_s(nodes: Server, tmp_path: Path) -> None:
    file = written(tmp_path, OF_HIVED)
    result = nodes.voda("vc", "import", file, "--leaf-type", "K80")
    assert "kubeApiServerAddress is for HiveD's own processes: it is left out" in result.stderr
    assert result.stdout.splitlines()[1:] == [
        "  VC1: 0 -> 1 K80-NODE",
        "  VC1: 0 -> 1 K80-NODE pinned as VC1-PIN",
        "  default: 0 -> 1 node",
    ]
    with pytest.raises(InvalidInput, match="no physical cell has devices of type V100, expected one of K80, M60"):
        nodes.voda("vc", "import", file, "--leaf-type", "V100")
    warned = nodes.voda("vc", "import", file, "--dry-run").stderr
    assert "declared, but not in the pool: m1" in warned


def test_job_when_submitted_to_a_virtual_cluster_is_in_it(nodes: Server, tmp_path: Path) -> None:
    nodes.voda("vc", "apply", written(tmp_path, TWO_TEAMS))
    manifest = msgspec.json.encode(a_manifest("digits"))
    nodes.voda("submit", "-", "--vc", "speech", "--priority", "-1", input=manifest)
    assert "Virtual cluster" in (shown := nodes.voda("describe", "digits").stdout)
    assert "speech, opportunistic" in shown
    with pytest.raises(InvalidInput, match="--vc: pool default has no virtual cluster 'audio'"):
        nodes.voda("submit", "-", "--vc", "audio", "--name", "other", input=manifest)


def test_example_when_applied_to_nodes_of_eight_gpus_is_what_the_docs_show(nodes: Server) -> None:
    file = str(Path(__file__).parents[3] / "examples" / "virtual-clusters.yaml")
    shown = nodes.voda("vc", "apply", file, "--dry-run").stdout.rstrip()
    docs = (Path(__file__).parents[3] / "docs" / "virtual-clusters.md").read_text("utf-8")
    assert shown in docs
    nodes.voda("vc", "apply", file)
    assert nodes.voda("vc", "list").stdout.rstrip() in docs
