"""A log that lost its end, as a user meets it: it is not carried elsewhere as if it were whole.

Rule: what was lost here is lost as in earnest, by a journal that a killed writer left and that was cut.
"""

import asyncio
import os
from pathlib import Path

import pytest

from tests.commands import Voda
from tests.sqlite_logs import behind_vodas_back, fill, leave_killed, position_of
from voda.log.archive.archive import Archive


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that once had 60 events."""
    (tmp_path / "work").mkdir()
    path = tmp_path / "log.db"
    asyncio.run(leave_killed(path, tmp_path / "work"))
    journal = tmp_path / "log.db-wal"
    os.truncate(journal, journal.stat().st_size // 2)
    return path


def told_end(log: Path) -> tuple[int, str]:
    """Return the position of the last event, and what is said of those behind it."""
    end = asyncio.run(position_of(log))
    assert 20 < end < 60
    return end, f"{log}: position {end + 1}: the log ends at {end} but once reached 60: its tail is cut; restore it"


@pytest.mark.parametrize("target", ["out.db", "out"])
def test_log_that_lost_its_end_is_not_carried_elsewhere(target: str, voda: Voda, log: Path, tmp_path: Path) -> None:
    end, said = told_end(log)
    answer = voda("log", "copy", log, tmp_path / target)
    assert (answer.status, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err
    hint = f"; to save what is left: voda log copy {log} FOLDER --to-position {end} (docs/backup.md)\n"
    assert answer.err.endswith(hint)
    assert not (tmp_path / target).exists()


def test_what_is_left_is_saved_up_to_the_position_that_was_named(voda: Voda, log: Path, tmp_path: Path) -> None:
    end, _ = told_end(log)
    refused = voda("log", "copy", log, tmp_path / "out", "--to-position", end + 1)
    assert (refused.status, (tmp_path / "out").exists()) == (2, False)
    assert voda("log", "copy", log, tmp_path / "out", "--to-position", end).status == 0
    assert Archive.open(tmp_path / "out").position == end
    assert voda("log", "copy", tmp_path / "out", tmp_path / "again.db").status == 0
    assert asyncio.run(position_of(tmp_path / "again.db")) == end


@pytest.mark.parametrize("command", [("events", "--to", "3"), ("replay",), ("replay", "--verify")])
def test_who_looks_at_a_log_that_lost_its_end_is_warned_once(command: tuple[str, ...], voda: Voda, log: Path) -> None:
    _, said = told_end(log)
    first, *options = command
    answer = voda(first, log, *options)
    assert answer.status == 0
    assert answer.err.count(f"voda: warning: {said}") == 1
    assert answer.err.count("its tail is cut") == 1


def test_log_whose_list_of_streams_lies_is_made_again_of_its_events(voda: Voda, tmp_path: Path) -> None:
    log, new = tmp_path / "log.db", tmp_path / "new.db"
    asyncio.run(fill(log, 6))
    behind_vodas_back(log, "UPDATE streams SET hash = 'x' WHERE stream = 'job.0'")
    assert voda("log", "verify", log).status == 2
    assert voda("log", "copy", log, tmp_path / "copy.db").status == 2
    assert voda("log", "copy", log, new, "--to-position", 6).status == 0
    assert voda("log", "verify", new).status == 0
    assert asyncio.run(position_of(new)) == 6
