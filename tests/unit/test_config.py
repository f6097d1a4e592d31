"""Claims about what is read from the environment."""

import os
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
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for name, value in {"HOME": "/home/u", **variables}.items():
        monkeypatch.setenv(name, value)
    assert config.home_folder() == Path(expected)


def test_home_folder_of_root_is_that_of_the_machine_unless_an_older_log_is_in_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("VODA_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config.home_folder() == Path("/var/lib/voda")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert config.home_folder() == Path("/data/voda")
    monkeypatch.delenv("XDG_DATA_HOME")
    own = tmp_path / ".local" / "share" / "voda"
    own.mkdir(parents=True)
    (own / "voda.db").touch()
    is_of_root = (own / "voda.db").stat().st_uid == 0
    assert config.home_folder() == (own if is_of_root else Path("/var/lib/voda"))
    if is_of_root:
        os.chown(own / "voda.db", 12_345, -1)
        assert config.home_folder() == Path("/var/lib/voda")
