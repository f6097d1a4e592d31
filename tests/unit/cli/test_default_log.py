"""The log that is read where none is named."""

import os
import socket
import sqlite3
from pathlib import Path

import pytest

from voda import config
from voda.cli.log_files import default_log, open_log
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


def test_default_log_beside_the_voda_of_root_says_how_its_past_is_seen(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(config, "MACHINE_SOCKET", home / "voda.sock")
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(home / "voda.sock"))
        with pytest.raises(InvalidInput, match=r"root's, and its log is for root to read: ask the server, with"):
            default_log()


async def test_log_that_the_user_may_not_read_is_refused_with_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = home / "voda.db"
    log.touch()
    # Root may read all files.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InvalidInput, match=rf"^you may not read {log}: ask the server"):
        async with open_log(str(log)):
            pass
