"""The variables that options of `voda submit` give to a program."""

from pathlib import Path

import pytest

from voda.cli.variables import files_of_variables, variables
from voda.domain.errors import InvalidInput


def test_variables_when_given_twice_have_the_value_of_the_later_option(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text('# a comment\n\nB=file\n  C=a b = "c" # d\nD=\n')
    here = {"A": "here", "B": "here", "SECRET": "x"}
    assert dict(variables(["A,B"], [file], ["C=option"], here)) == {"A": "here", "B": "file", "C": "option", "D": ""}
    assert dict(variables([], [file], [], here))["C"] == 'a b = "c" # d'


@pytest.mark.parametrize(
    ("exported", "lines", "pairs", "message"),
    [
        (["A,NO"], "", [], "--export NO: there is no such variable here; --env gives a value"),
        ([""], "", [], "--export : there is no such variable here"),
        ([], "A=1\nsecret value", [], "line 2: expected NAME=VALUE, with a name of letters, digits and _, got 'secret"),
        ([], "", ["A-B=1"], "--env: expected NAME=VALUE"),
    ],
)
def test_variables_that_cannot_be_are_refused(
    tmp_path: Path, exported: list[str], lines: str, pairs: list[str], message: str
) -> None:
    file = tmp_path / "env"
    file.write_text(lines)
    with pytest.raises(InvalidInput, match=message):
        variables(exported, [file], pairs, {"A": "1"})


def test_file_of_variables_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--env-file .*/none cannot be read: No such file or directory"):
        variables([], [tmp_path / "none"], [], {})
    with pytest.raises(InvalidInput, match="has more than 1,048,576 bytes"):
        variables([], [Path("/dev/zero")], [], {})


def test_file_of_a_secret_gets_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert files_of_variables(["A=key", "B=~/b", "C=/c"]) == (
        ("A", str(tmp_path / "key")),
        ("B", "/home/ada/b"),
        ("C", "/c"),
    )
    with pytest.raises(InvalidInput, match="--env-from-file: expected NAME=PATH"):
        files_of_variables(["A="])
