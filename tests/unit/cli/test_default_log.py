"""The log that is read where none is named."""

import sqlite3
from pathlib import Path

import pytest

from voda.cli.log_files import default_log
from voda.domain.errors import InvalidInput


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VODA_HOME", str(tmp_path))
    return tmp_path


def test_default_log_is_that_of_the_data_folder(home: Path) -> None:
    sqlite3.connect(home / "voda.db").close()
    assert default_log() == str(home / "voda.db")


def test_default_log_is_the_one_that_the_folder_is_bound_to(home: Path) -> None:
    other = home / "other.db"
    other.touch()
    (home / "log.place").write_text(f"{other}\n")
    assert default_log() == str(other)
    (home / "log.place").write_text("postgresql://log.example/voda\n")
    assert default_log() == "postgresql://log.example/voda"


def test_default_log_when_there_is_none_says_what_to_do(home: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no log is named, and there is none at .*voda\.db: name one, or set VODA_"):
        default_log()
