"""`voda log`, as a user meets it: what it prints where, and how it exits."""

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

from tests.builders import a_fact
from tests.commands import Voda
from tests.postgres import PASSWORD, Server
from voda.log.factory import open_store


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of four events."""

    async def fill() -> None:
        store = await open_store(tmp_path / "log.db")
        for number in range(4):
            await store.append(f"job.{number % 2}", -1, [a_fact(str(number))])
        await store.close()

    asyncio.run(fill())
    return tmp_path / "log.db"


def test_verify_of_a_sound_log_says_what_it_holds(voda: Voda, log: Path) -> None:
    said = voda("log", "verify", log)
    assert said == (0, f"{log}: 4 events in 2 streams and 0 snapshots are what was written\n", "")


def test_verify_of_a_damaged_log_names_the_position_for_people_and_programs(voda: Voda, log: Path) -> None:
    _damage(log, 2)
    said = voda("log", "verify", log)
    assert said == (2, "", f"voda: {log}: position 2: the checksum does not fit the event\n")
    told = voda("log", "verify", log, "--output", "json")
    assert told.status == 2
    assert json.loads(told.out) == {
        "log": str(log),
        "is_intact": False,
        "events": 1,
        "streams": 1,
        "snapshots": 0,
        "damaged_at": 2,
        "problem": "position 2: the checksum does not fit the event",
        "archived": 0,
    }


@pytest.mark.parametrize("command", ["verify", "migrate"])
def test_file_that_is_not_there_is_one_line_and_status_2(voda: Voda, tmp_path: Path, command: str) -> None:
    said = voda("log", command, tmp_path / "nothere.db")
    assert (said.status, said.out) == (2, "")
    assert "there is no such log" in said.err
    assert len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_server_that_does_not_answer_is_status_75(voda: Voda) -> None:
    said = voda("log", "verify", "postgresql://voda:secret@127.0.0.1:1/log")
    assert said.status == 75
    assert "postgresql://voda:***@127.0.0.1:1/log does not answer" in said.err


@pytest.mark.postgres
def test_log_moves_from_sqlite_to_postgresql(
    voda: Voda, log: Path, tmp_path: Path, postgres_server: Server, postgres_database: str
) -> None:
    assert "run 'voda log migrate" in voda("log", "copy", log, postgres_database).err
    said = [voda("log", "migrate", postgres_database), voda("log", "copy", log, postgres_database)]
    said += [voda("log", "verify", postgres_database), voda("log", "verify", postgres_database, "-o", "json")]
    assert [each.status for each in said] == [0, 0, 0, 0]
    assert all(":***@" in each.out + each.err and PASSWORD not in each.out + each.err for each in said)
    assert (
        voda("log", "copy", log, tmp_path / "a").status == voda("log", "copy", postgres_database, tmp_path / "b").status
    )
    names = [sorted(path.name for path in (tmp_path / folder).iterdir()) for folder in ("a", "b")]
    assert names[0] == names[1], "the names have the hashes of all bytes"


def test_migrate_without_an_argument_takes_the_log_of_the_environment(
    voda: Voda, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VODA_LOG", raising=False)
    refused = voda("log", "migrate")
    assert (refused.status, refused.err) == (2, "voda: no log is named: give its URL, or set VODA_LOG\n")
    monkeypatch.setenv("VODA_LOG", str(log))
    done = voda("log", "migrate")
    assert (done.status, done.err) == (0, f"{log} is ready for this version\n")


@pytest.mark.parametrize("command", ["copy", "verify", "trim", "snapshot", "migrate"])
def test_help_of_each_command_has_an_example(voda: Voda, command: str) -> None:
    said = voda("log", command, "--help")
    assert (said.status, f" voda log {command} " in said.out.partition("Example")[2]) == (0, True)


@pytest.mark.parametrize(
    ("former", "today"),
    [
        ("export", "voda log copy LOG FOLDER"),
        ("import", "voda log copy FOLDER LOG"),
        ("backup", "voda log copy LOG FOLDER"),
        ("restore", "voda log copy FOLDER LOG"),
        ("archive", "voda log trim LOG FOLDER --keep 90d"),
    ],
)
def test_former_command_says_what_to_run_instead(voda: Voda, former: str, today: str) -> None:
    said = voda("log", former, "voda.db", "elsewhere")
    assert (said.status, today in " ".join(said.err.replace("│", " ").split())) == (2, True)


def _damage(log: Path, position: int) -> None:
    connection = sqlite3.connect(log)
    with connection:
        connection.execute("UPDATE events SET body = replace(body, ':1.0', ':2.0') WHERE position = ?", (position,))
    connection.close()
