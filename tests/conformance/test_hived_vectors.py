"""Every recorded group, driven through voda.cells; what the command prints and returns."""

import json
from pathlib import Path

import pytest

from tests.conformance.hived.__main__ import main
from tests.conformance.hived.report import run_vectors, summary
from tests.conformance.public_vectors import HIVED, public_vectors
from tests.public_data import folder_or_skip


def test_hived_vectors_when_all_are_run_agree() -> None:
    results = run_vectors(public_vectors())
    assert [line for result in results if not result.holds for line in result.lines()] == []
    assert summary(results) == "33 of 33 groups, 309 of 309 operations"


def test_conformance_command_when_all_hold_prints_a_line_per_group_and_succeeds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([str(folder_or_skip(HIVED) / "vectors.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "stateful_preemption: ok"
    assert lines[-1] == "33 of 33 groups, 309 of 309 operations"


def test_conformance_command_when_an_answer_is_another_names_it_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = json.loads((folder_or_skip(HIVED) / "vectors.json").read_bytes())
    preempting = recorded["groups"][0]["ops"][2]["expect"]
    assert preempting["victims"] == ["pod28"]
    preempting["victims"] = preempting["victimsSubsetOf"] = ["pod1"]
    (tmp_path / "other.json").write_text(json.dumps(recorded), encoding="utf-8")
    assert main([str(tmp_path / "other.json")]) == 1
    assert "2 schedule pod29: victims ['pod28'], HiveD ['pod1']" in capsys.readouterr().out


def test_conformance_command_when_no_file_is_named_says_how_to_call_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "python -m tests.conformance.hived FILE" in capsys.readouterr().err
