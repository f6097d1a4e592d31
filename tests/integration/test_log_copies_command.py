"""`voda log copy`, `trim` and `snapshot`, as a user meets them."""

import asyncio
import json
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builders import a_fact
from tests.commands import Voda
from tests.postgres import PASSWORD, Server
from tests.sqlite_logs import behind_vodas_back, fill
from voda.cli.log_files import new_store
from voda.domain.errors import StoreUnavailable
from voda.events.envelope import ANY_VERSION, Sealed
from voda.log.archive.archive import Archive
from voda.log.factory import open_log, open_store


def events(place: str | Path, archive: Path | None = None) -> Sequence[Sealed]:
    async def read() -> Sequence[Sealed]:
        store = await open_log(place, archive=archive)
        try:
            return await store.read_sealed(0, 1_000)
        finally:
            await store.close()

    return asyncio.run(read())


def append(place: Path, event_id: str, *, at: float = 0.0) -> None:
    async def run() -> None:
        store = await open_store(place)
        await store.append("job.1", ANY_VERSION, [a_fact(event_id, at=at)])
        await store.close()

    asyncio.run(run())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of four events in two streams."""
    asyncio.run(fill(tmp_path / "log.db", 4))
    return tmp_path / "log.db"


# ---- copy


def test_copy_goes_on_where_it_ended(voda: Voda, log: Path, tmp_path: Path) -> None:
    copy, last = tmp_path / "copy.db", events(log)[-1].hash
    said = voda("log", "copy", log, copy)
    assert said == (0, f"{copy}: 4 events copied; the last is 4, {last}\n", "")
    append(log, "new")
    told = json.loads(voda("log", "copy", log, copy, "-o", "json").out)
    assert (told["events"], told["position"], told["hash"]) == (1, 5, events(log)[-1].hash)
    assert events(copy) == events(log)
    assert voda("log", "verify", copy).status == 0


async def test_copy_that_breaks_off_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy.db"

    async def broken_off() -> None:
        async with new_store(str(copy)) as store:
            await store.append("job.1", ANY_VERSION, [a_fact("first")])
            raise StoreUnavailable("gone")

    for said in (f"voda: {copy} has the events up to position 1, no more: run the command again to go on", ""):
        with pytest.raises(StoreUnavailable):
            await broken_off()
        err = capsys.readouterr().err
        assert err.startswith(said) if said else not err


def test_log_and_every_copy_of_it_are_for_their_owner_alone(voda: Voda, log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    assert voda("log", "copy", log, tmp_path / "copy.db").status == 0
    assert voda("log", "copy", log, folder).status == 0
    files = [*tmp_path.glob("*.db*"), *folder.iterdir()]
    assert {oct(stat.S_IMODE(file.stat().st_mode)) for file in files} == {"0o600"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_copy_brings_snapshots_along(voda: Voda, log: Path, tmp_path: Path) -> None:
    voda("log", "snapshot", log)
    told = json.loads(voda("log", "copy", log, tmp_path / "copy.db", "-o", "json").out)
    assert told["snapshots"] == 2
    said = voda("log", "verify", tmp_path / "copy.db").out
    assert "4 events in 2 streams and 2 snapshots are what was written" in said


def test_copy_to_a_log_that_went_its_own_way_is_refused_in_one_sentence(voda: Voda, log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    voda("log", "copy", log, copy)
    append(log, "here")
    append(copy, "there")
    before = events(copy)
    said = voda("log", "copy", log, copy)
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    assert "the copy is not the beginning of the log: by position 5 they have parted" in said.err
    assert events(copy) == before


def test_copy_of_what_is_no_log_leaves_no_file_behind(voda: Voda, tmp_path: Path) -> None:
    said = voda("log", "copy", tmp_path / "none.db", tmp_path / "copy.db")
    assert (said.status, said.err) == (2, f"voda: {tmp_path}/none.db: there is no such log\n")
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.postgres
def test_copy_to_postgresql_and_back_is_the_same_log(
    voda: Voda, log: Path, tmp_path: Path, postgres_database: str, postgres_server: Server
) -> None:
    assert voda("log", "migrate", postgres_database).status == 0
    said = voda("log", "copy", log, postgres_database)
    assert said.status == 0
    assert PASSWORD not in said.out + said.err
    assert voda("log", "copy", postgres_database, tmp_path / "back.db").status == 0
    assert events(tmp_path / "back.db") == events(postgres_database) == events(log)
    voda("log", "snapshot", postgres_database)
    told = json.loads(voda("log", "trim", postgres_database, tmp_path / "a", "--before", 3, "-o", "json").out)
    assert (told["events"], told["base"], told["position"]) == (2, 2, 4)
    assert events(postgres_database) == events(log)
    assert voda("log", "verify", postgres_database, "--archive", tmp_path / "a").status == 0
    assert postgres_server.sql(postgres_database, "SELECT count(*) FROM events") == "2"


# ---- folders


def test_copy_in_a_folder_makes_the_same_log(voda: Voda, log: Path, tmp_path: Path) -> None:
    backup, again, part = tmp_path / "backup", tmp_path / "again.db", tmp_path / "part.db"
    last = events(log)[-1].hash
    assert voda("log", "copy", log, backup).out == f"{backup}: 4 events copied; the last is 4, {last}\n"
    assert voda("log", "verify", backup).status == 0
    restored = voda("log", "copy", backup, again)
    assert restored.out == f"{again}: 4 events copied; the last is 4, {last}\n"
    assert "After a restore" in restored.err
    assert events(again) == events(log) == events(backup)
    assert voda("log", "copy", backup, part, "--to-position", 3).status == 0
    assert events(part) == events(log)[:3]
    assert voda("log", "verify", part).status == 0
    beyond = voda("log", "copy", backup, tmp_path / "beyond.db", "--to-position", 5)
    assert (beyond.status, (tmp_path / "beyond.db").exists()) == (2, False)
    assert "ends at position 4, expected at least 5" in beyond.err
    assert voda("log", "copy", backup, again).out == f"{again}: 0 events copied; the last is 4, {last}\n"
    assert voda("log", "copy", backup, tmp_path / "second").status == 0
    assert events(tmp_path / "second") == events(log)


def test_copy_from_a_folder_to_a_log_of_other_events_changes_nothing(voda: Voda, log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    append(other, "theirs")
    voda("log", "copy", log, tmp_path / "backup")
    said = voda("log", "copy", tmp_path / "backup", other)
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    assert "by position 1 they have parted" in said.err
    assert len(events(other)) == 1


def test_new_place_is_a_folder_unless_its_name_is_a_logs(voda: Voda, log: Path, tmp_path: Path) -> None:
    for place, is_folder in (("plain", True), ("log.db.d", True), ("a.db", False), (f"sqlite:///{tmp_path}/b", False)):
        assert voda("log", "copy", log, place if "://" in place else tmp_path / place).status == 0
        assert (tmp_path / place.rpartition("/")[2]).is_dir() == is_folder
    assert voda("log", "copy", log, tmp_path / "b").out.startswith(f"{tmp_path}/b: 0 events copied"), "a log by now"
    (tmp_path / "text").write_text("precious")
    refused = voda("log", "copy", log, tmp_path / "text")
    assert (refused.status, "is not a voda log" in refused.err) == (2, True)
    follow = voda("log", "copy", log, tmp_path / "plain", "--follow")
    assert (follow.status, "--follow is for a copy of all in another store" in follow.err) == (2, True)


def test_damaged_segment_is_named_and_what_is_before_it_can_be_copied(voda: Voda, log: Path, tmp_path: Path) -> None:
    backup = tmp_path / "b"
    voda("log", "copy", log, backup)
    append(log, "new")
    voda("log", "copy", log, backup)
    damaged = Archive.open(backup).segments[1].path
    damaged.write_bytes(damaged.read_bytes()[:-3])
    verified = voda("log", "verify", backup, "-o", "json")
    assert (verified.status, json.loads(verified.out)["damaged_at"]) == (2, 5)
    said = voda("log", "copy", backup, tmp_path / "again.db")
    assert (said.status, (tmp_path / "again.db").exists()) == (2, False)
    assert f"{damaged}: positions 5 to 5: its bytes are not what was written" in said.err
    assert voda("log", "copy", backup, tmp_path / "part.db", "--to-position", 4).status == 0


@pytest.mark.parametrize("backed_up", [0, 2])
def test_sound_part_of_a_damaged_log_is_added_to_the_backup(
    voda: Voda, log: Path, tmp_path: Path, backed_up: int
) -> None:
    whole, backup = events(log), tmp_path / "b"
    if backed_up:
        voda("log", "copy", log, backup, "--to-position", backed_up)
    behind_vodas_back(log, "UPDATE events SET body = x'00' WHERE position = 4")
    refused = voda("log", "copy", log, backup)
    assert (refused.status, "position 4: the checksum does not fit" in refused.err) == (2, True)
    assert voda("log", "copy", log, backup, "--to-position", 3).status == 0
    assert voda("log", "copy", backup, tmp_path / "again.db").status == 0
    assert events(tmp_path / "again.db") == whole[:3]


def test_folder_that_is_no_backup_is_refused(voda: Voda, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments in (("copy", tmp_path / "empty", tmp_path / "x.db"), ("verify", tmp_path / "empty")):
        said = voda("log", *arguments)
        assert (said.status, "is a directory without segments" in said.err) == (2, True)
    gone = voda("log", "copy", tmp_path / "gone", tmp_path / "x.db")
    assert (gone.status, gone.err) == (2, f"voda: {tmp_path}/gone: there is no such log\n")


# ---- trim


def test_log_without_snapshots_is_not_archived(voda: Voda, log: Path, tmp_path: Path) -> None:
    said = voda("log", "trim", log, tmp_path / "a", "--before", 3)
    assert (said.status, (tmp_path / "a").exists()) == (2, False)
    assert "has no snapshot live-" in said.err
    assert f"run 'voda log snapshot {log}' first" in said.err


def test_log_that_is_not_there_is_neither_archived_nor_made(voda: Voda, tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    for command in (["trim", str(missing), str(tmp_path / "archive"), "--keep", "1d"], ["snapshot", str(missing)]):
        said = voda("log", *command)
        assert (said.status, said.err) == (2, f"voda: {missing}: there is no such log\n")
    assert not missing.exists()


def test_archived_log_is_short_and_still_tells_everything(voda: Voda, log: Path, tmp_path: Path) -> None:
    whole = events(log)
    assert voda("log", "snapshot", log).out == f"{log}: a snapshot of position 4 is there\n"
    append(log, "new")
    said = voda("log", "trim", log, tmp_path / "a", "--before", 6)
    assert said.out == (
        f"{log}: 4 events archived; it has 5 to 5\n"
        "those up to 5 can follow once there is a snapshot newer than that of 4\n"
    )
    assert events(log)[:4] == whole
    verified = voda("log", "verify", log).out
    assert "the events from 5 to 5 (those before are archived: --archive)" in verified
    assert "5 events in 2 streams" in voda("log", "verify", log, "--archive", tmp_path / "a").out
    assert '"job_id":"a"' in voda("events", log, "--to", "1", "-o", "json").out.replace(" ", "")
    assert voda("log", "copy", log, tmp_path / "all").status == 0
    assert events(tmp_path / "all") == events(log)
    assert voda("log", "copy", log, tmp_path / "copy.db").status == 0
    assert events(tmp_path / "copy.db") == events(log)


def test_archive_that_was_moved_is_named_or_missed(
    voda: Voda, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = events(log)
    voda("log", "snapshot", log)
    voda("log", "trim", log, tmp_path / "a", "--before", 4)
    (tmp_path / "a").rename(tmp_path / "b")
    missed = voda("log", "copy", log, tmp_path / "x.db")
    assert (missed.status, missed.err.count("\n"), (tmp_path / "x.db").exists()) == (2, 1, False)
    assert f"the events up to position 3 were archived to {tmp_path}/a" in missed.err
    assert voda("log", "copy", log, tmp_path / "x.db", "--archive", tmp_path / "b").status == 0
    monkeypatch.setenv("VODA_ARCHIVE", str(tmp_path / "b"))
    assert events(log) == whole


def test_archive_keeps_what_is_young_enough(voda: Voda, log: Path, tmp_path: Path) -> None:
    append(log, "young", at=4e9)
    voda("log", "snapshot", log)
    told = json.loads(voda("log", "trim", log, tmp_path / "a", "--keep", "30d", "-o", "json").out)
    assert (told["base"], told["events"]) == (4, 4)
    again = json.loads(voda("log", "trim", log, tmp_path / "a", "--keep", "30d", "-o", "json").out)
    assert (again["base"], again["events"]) == (4, 0)
    for wrong in (["--keep", "soon"], ["--keep", "30"], [], ["--keep", "1d", "--before", "3"]):
        assert voda("log", "trim", log, tmp_path / "a", *wrong).status == 2


def test_snapshot_of_an_archived_log_needs_its_archive(voda: Voda, log: Path, tmp_path: Path) -> None:
    voda("log", "snapshot", log)
    voda("log", "trim", log, tmp_path / "a", "--before", 4)
    append(log, "new")
    assert "position 5" in voda("log", "snapshot", log).out
    (tmp_path / "a").rename(tmp_path / "b")
    assert "were archived to" in voda("log", "snapshot", log).err
    assert voda("log", "snapshot", log, "--archive", tmp_path / "b").status == 0
