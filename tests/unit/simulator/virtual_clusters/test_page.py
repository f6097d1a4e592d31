"""`voda simulate --virtual-clusters`: tables, figures as JSON, a page; and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.commands import Voda

JOBS = """name,submitted_s,requested,max,epochs,work_s,virtual_cluster
long-1,0,4,8,4,8000,<b>
other-1,100,4,4,1,400,speech
late-1,120,2,4,2,900,<b>
"""
CLUSTERS = "virtualClusters:\n  vision: {cells: {node: 1}}\n  speech: {cells: {node: 1}}\n"


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    (tmp_path / "jobs.csv").write_text(JOBS.replace("<b>", "vision"))
    (tmp_path / "clusters.yaml").write_text(CLUSTERS)
    return ["-w", tmp_path / "jobs.csv", "--nodes", "2x4", "--virtual-clusters", tmp_path / "clusters.yaml"]


def test_simulate_when_private_clusters_are_asked_for_compares_every_mode(voda: Voda, files: list[object]) -> None:
    said = voda("simulate", *files, "--private", "-o", "json")
    assert said.status == 0, said.err
    (policy,) = json.loads(said.out)["virtual_clusters"]
    assert [each["mode"] for each in policy["modes"]] == [
        "private",
        "numbers",
        "cells",
        "cells-lent",
        "private-elastic",
        "cells-elastic",
    ]
    assert {each["name"]: each["jobs"] for each in policy["clusters"]} == {"vision": 2, "speech": 1}
    assert all(each["anomalies"]["jobs"] == 0 for each in policy["modes"] if each["anomalies"])
    assert policy["modes"][-1]["borrowed_gpu_h"] > 0.0


def test_simulate_when_it_writes_a_page_draws_every_mode(voda: Voda, files: list[object], tmp_path: Path) -> None:
    said = voda("simulate", *files, "--private", "-p", "elastic-fifo", "-p", "fifo", "--out", tmp_path / "out")
    assert said.status == 0, said.err
    assert "jobs that start over" in said.out
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<svg") == 6
    assert "cells, elastic" in page
    assert json.loads((tmp_path / "out" / "results.json").read_text())["workload"] == "jobs"


def test_tables_of_all_modes_fit_80_columns(voda: Voda, files: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = voda("simulate", *files, "--private")
    assert "elastic-fifo: all virtual clusters" in said.out
    assert "reclaims" in said.out
    assert "…" not in said.out


def test_simulate_when_one_mode_is_named_runs_it_with_its_private_clusters(voda: Voda, files: list[object]) -> None:
    said = voda("simulate", *files, "--private", "--mode", "cells", "-o", "json")
    (policy,) = json.loads(said.out)["virtual_clusters"]
    assert [each["mode"] for each in policy["modes"]] == ["private", "cells"]
    assert "jobs that start over" not in voda("simulate", *files, "--mode", "cells").out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--private"], "--private and --mode go with --virtual-clusters FILE"),
        (["--virtual-clusters", "absent.yaml"], "absent.yaml: cannot be read"),
        (["--virtual-clusters", __file__], "test_page.py, line 1, column 3: no valid YAML"),
    ],
)
def test_simulate_when_options_do_not_go_together_says_so(voda: Voda, arguments: list[str], sentence: str) -> None:
    said = voda("simulate", *arguments)
    assert said.status == 2
    assert sentence in said.err


def test_simulate_when_a_mode_or_placer_is_unknown_says_so(voda: Voda, files: list[object]) -> None:
    assert "--mode wishes: expected numbers, cells" in voda("simulate", *files, "--mode", "wishes").err
    assert "no --placer" in voda("simulate", *files, "--placer", "packed").err
