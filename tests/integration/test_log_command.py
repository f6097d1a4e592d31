"""`voda log`, as a user meets it: what it prints where, and how it exits."""

import asyncio
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import a_fact
from tests.commands import Voda
from tests.postgres import PASSWORD, Server
from voda.log.append_plan import GroupPlan
from voda.log.factory import open_store
from voda.log.sql.sqlite import SqliteDatabase
from voda.log.sql.store import SqlStore


@pytest.fixture
def voda(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Voda:
    return Voda(monkeypatch, capfd)


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


def test_log_exported_imported_and_exported_again_is_the_same_file(voda: Voda, log: Path, tmp_path: Path) -> None:
    first, copy, second = tmp_path / "1.jsonl", tmp_path / "copy.db", tmp_path / "2.jsonl"
    assert voda("log", "export", log, "-o", first).status == 0
    assert voda("log", "import", first, copy).status == 0
    assert voda("log", "export", copy, "-o", second).status == 0
    assert first.read_bytes() == second.read_bytes()
    assert voda("log", "export", second).out.encode() == first.read_bytes()


def test_export_does_not_replace_a_file_unless_told_to(voda: Voda, log: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.txt"
    there.write_text("precious")
    said = voda("log", "export", log, "-o", there)
    assert (said.status, there.read_text()) == (2, "precious")
    assert "is there already: choose another file, or replace it with --force" in said.err
    assert voda("log", "export", log, "-o", there, "--force").status == 0
    assert there.read_text().startswith('{"after":0,"format":"voda-segment"')


def test_export_never_replaces_its_log_or_what_is_no_file(voda: Voda, log: Path, tmp_path: Path) -> None:
    before, link, pipe = log.read_bytes(), tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(log)
    os.mkfifo(pipe)
    for output, said in ((log, "is the log itself"), (link, "is the log itself"), (pipe, "is no regular file")):
        refused = voda("log", "export", log, "-o", output, "--force")
        assert (refused.status, refused.out) == (2, "")
        assert refused.err.startswith(f"voda: {output} {said}")
    assert log.read_bytes() == before
    assert pipe.is_fifo()


def test_export_of_a_damaged_log_leaves_no_file(voda: Voda, log: Path, tmp_path: Path) -> None:
    _damage(log, 3)
    said = voda("log", "export", log, "-o", tmp_path / "out.jsonl")
    assert (said.status, said.err) == (2, "voda: position 3: the checksum does not fit the event\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.db"]


@pytest.mark.parametrize("is_cut", [True, False])
def test_import_of_a_bad_file_leaves_no_log(voda: Voda, log: Path, tmp_path: Path, is_cut: bool) -> None:
    export, target = tmp_path / "out.jsonl", tmp_path / "new.db"
    voda("log", "export", log, "-o", export)
    text = export.read_bytes()
    export.write_bytes(text[:-300] if is_cut else b"job,submitted\n")
    said = voda("log", "import", export, target)
    assert said.status == 2
    assert said.err.startswith(f"voda: {export}")
    assert len(said.err.splitlines()) == 1
    assert not target.exists()


def test_import_that_fails_leaves_what_another_began_to_write_meanwhile(
    voda: Voda, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export, target = tmp_path / "out.jsonl", tmp_path / "new.db"
    voda("log", "export", log, "-o", export)

    async def as_another_process(store: SqlStore, batches: Iterator[GroupPlan]) -> None:
        await store.append("job.a", 0, [a_fact("theirs")])
        await SqliteDatabase.restore(store.database, batches)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlStore, "restore", as_another_process)
    said = voda("log", "import", export, target)
    assert (said.status, said.err) == (2, f"voda: {target} is not empty: it has 1 events\n")
    assert json.loads(voda("log", "verify", target, "-o", "json").out)["events"] == 1


def test_import_of_what_never_ends_is_refused_at_once(voda: Voda, tmp_path: Path) -> None:
    said = voda("log", "import", "/dev/zero", tmp_path / "new.db")
    assert said.status == 2
    assert "/dev/zero is not an exported log" in said.err
    assert list(tmp_path.iterdir()) == []


def test_import_into_a_log_that_has_events_leaves_it_as_it_is(voda: Voda, log: Path, tmp_path: Path) -> None:
    export = tmp_path / "out.jsonl"
    voda("log", "export", log, "-o", export)
    said = voda("log", "import", export, log)
    assert (said.status, said.err) == (2, f"voda: {log} is not empty: it has 4 events\n")
    assert json.loads(voda("log", "verify", log, "-o", "json").out)["events"] == 4


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


def test_verify_of_a_damaged_export_names_the_position(voda: Voda, log: Path, tmp_path: Path) -> None:
    export = tmp_path / "out.jsonl"
    voda("log", "export", log, "-o", export)
    export.write_bytes(export.read_bytes().replace(b'"event_id":"2"', b'"event_id":"7"'))
    told = voda("log", "verify", export, "--output", "json")
    assert (told.status, json.loads(told.out)["damaged_at"]) == (2, 3)


@pytest.mark.parametrize("command", ["export", "verify", "migrate"])
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
    export = tmp_path / "out.jsonl"
    voda("log", "export", log, "-o", export)
    assert "run 'voda log migrate" in voda("log", "import", export, postgres_database).err
    said = [voda("log", "migrate", postgres_database), voda("log", "import", export, postgres_database)]
    said += [voda("log", "verify", postgres_database), voda("log", "verify", postgres_database, "-o", "json")]
    assert [each.status for each in said] == [0, 0, 0, 0]
    assert all(":***@" in each.out + each.err and PASSWORD not in each.out + each.err for each in said)
    assert voda("log", "export", postgres_database).out.encode() == export.read_bytes()


def test_migrate_without_an_argument_takes_the_log_of_the_environment(
    voda: Voda, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VODA_LOG", raising=False)
    refused = voda("log", "migrate")
    assert (refused.status, refused.err) == (2, "voda: no log is named: give its URL, or set VODA_LOG\n")
    monkeypatch.setenv("VODA_LOG", str(log))
    done = voda("log", "migrate")
    assert (done.status, done.err) == (0, f"{log} is ready for this version\n")


@pytest.mark.parametrize("command", ["export", "import", "verify", "migrate"])
def test_help_of_each_command_has_an_example(voda: Voda, command: str) -> None:
    said = voda("log", command, "--help")
    assert (said.status, f"Example: voda log {command}" in said.out) == (0, True)


def _damage(log: Path, position: int) -> None:
    connection = sqlite3.connect(log)
    with connection:
        connection.execute("UPDATE events SET body = replace(body, ':1.0', ':2.0') WHERE position = ?", (position,))
    connection.close()
