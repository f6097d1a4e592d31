"""`voda policies`: the list, for people and for programs."""

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from voda.cli import build_app


def test_policies_when_asked_for_json_are_name_title_paper_and_parameters() -> None:
    result = CliRunner().invoke(build_app(), ["policies", "-o", "json"])
    assert result.exit_code == 0
    rows = msgspec.json.decode(result.stdout, type=list[dict[str, Any]])
    assert [row["name"] for row in rows][:2] == ["afs-l", "elastic-fifo"]
    assert {key for row in rows for key in row} == {"name", "title", "paper", "parameters"}


def test_policies_when_listed_fit_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(build_app(), ["policies"]).stdout.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert any(line.startswith("elastic-tiresias  ") for line in lines)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({}, "spare = 1.0: "),
        ({"minimum": 0}, "spare = 1.0, 0 or more: "),
        ({"maximum": 9}, "spare = 1.0, 9 or less: "),
        ({"minimum": 0, "maximum": 9}, "spare = 1.0, 0 to 9: "),
    ],
)
def test_policies_say_the_bounds_that_a_parameter_has(
    bounds: dict[str, int], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas = {"fifo": {"spare": {"default": 1.0, **bounds}}}
    monkeypatch.setattr("voda.policies.toolkit.parameters.parameter_schemas", lambda: schemas)
    assert words in CliRunner().invoke(build_app(), ["policies"]).stdout


def test_policies_when_asked_for_help_show_an_example() -> None:
    result = CliRunner().invoke(build_app(), ["policies", "--help"])
    assert "voda policies -o json" in result.stdout
