"""Claims about what is read from the environment."""

from pathlib import Path

import pytest

from voda import config


def test_data_folder_when_set_is_that_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VODA_DATA", "/some/where")
    assert config.data_folder() == Path("/some/where")


@pytest.mark.parametrize("empty", ["", "  "])
def test_data_folder_when_empty_is_none(monkeypatch: pytest.MonkeyPatch, empty: str) -> None:
    monkeypatch.setenv("VODA_DATA", empty)
    assert config.data_folder() is None


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"VODA_HOME": "/some/where"}, "/some/where"),
        ({"XDG_DATA_HOME": "/data"}, "/data/voda"),
        ({"XDG_DATA_HOME": ""}, "/home/u/.local/share/voda"),
        ({}, "/home/u/.local/share/voda"),
    ],
)
def test_home_folder_is_by_the_variable_else_by_the_xdg_convention(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("VODA_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/u", **variables}.items():
        monkeypatch.setenv(name, value)
    assert config.home_folder() == Path(expected)
