"""A flipped bit or a cut in a log's files is found or harmless, its place is named, and a copy brings all back."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.served import command, environment
from tests.postgres import Server
from tests.torture import damage_cluster, damage_jetstream, damage_postgres, damage_sqlite
from tests.torture.damage_judge import Outcome, Truth
from voda.log.factory import open_store

_WAIT_S = 120


@pytest.mark.slow
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_damage_to_an_sqlite_log_is_found_or_harmless(is_closed: bool) -> None:
    report = damage_sqlite.torture(rounds=120, seed=1, is_closed=is_closed)
    assert report.problems == []
    assert report.rounds == 120
    assert report.outcomes[Outcome.FOUND] + report.outcomes[Outcome.MISREAD] > 30


@pytest.mark.slow
@pytest.mark.parametrize("has_checksums", [True, False], ids=["checksums", "none"])
def test_damage_to_a_postgresql_log_is_found_or_harmless(has_checksums: bool, postgres_server: Server) -> None:
    # The fixture says whether there are binaries; the damage is done to a server of its own.
    report = damage_postgres.torture(rounds=30, seed=2, has_checksums=has_checksums)
    assert report.problems == []
    assert report.rounds == 30


@pytest.mark.slow
@pytest.mark.usefixtures("nats_server")
@pytest.mark.parametrize("has_index", [True, False], ids=["stopped", "killed"])
def test_damage_to_a_jetstream_log_is_found_or_harmless(has_index: bool) -> None:
    report = damage_jetstream.torture(rounds=8, seed=1, has_index=has_index)
    assert report.problems == []
    assert report.rounds == 8


@pytest.mark.slow
@pytest.mark.usefixtures("nats_server")
def test_damage_to_one_node_of_three_is_mended_by_the_others() -> None:
    report = damage_cluster.torture(rounds=4, seed=1)
    assert report.problems == []
    assert report.outcomes == {Outcome.HARMLESS: 4}


@pytest.fixture(scope="module")
def sound() -> tuple[dict[str, bytes], Truth]:
    """Files of a sound, closed log, and what is in it."""
    return damage_sqlite.sound(is_closed=True)


def _voda(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*arguments), env=environment(folder), capture_output=True, text=True, timeout=_WAIT_S, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("position", [1, 57, 400])
def test_bit_flipped_in_an_event_is_located_refused_and_mended_from_a_copy(
    position: int, sound: tuple[dict[str, bytes], Truth], tmp_path: Path
) -> None:
    files, truth = sound
    log = tmp_path / "voda.db"
    log.write_bytes(files[damage_sqlite.LOG])
    backup, restored = tmp_path / "backup", tmp_path / "restored.db"
    assert _voda(tmp_path, "log", "copy", str(log), str(backup)).returncode == 0
    body = truth.events[position - 1].body
    contents = bytearray(log.read_bytes())
    contents[contents.index(body) + len(body) // 2] ^= 16
    log.write_bytes(contents)

    told = _voda(tmp_path, "log", "verify", str(log), "-o", "json")
    assert told.returncode == 2
    assert json.loads(told.stdout)["damaged_at"] == position

    # A service begins with the whole log, as there is no snapshot of its own.
    up = _voda(tmp_path, "up", "--port", "0", "--slots", "1")
    assert up.returncode != 0
    assert f"position {position}: the checksum does not fit the event" in up.stderr
    assert "Traceback" not in up.stderr

    assert _voda(tmp_path, "log", "copy", str(backup), str(restored)).returncode == 0
    assert asyncio.run(_sealed(restored)) == list(truth.events)
    assert _voda(tmp_path, "log", "verify", str(restored)).returncode == 0


async def _sealed(path: Path) -> list[object]:
    store = await open_store(path, read_only=True)
    try:
        return list(await store.read_sealed(0, 1_000_000))
    finally:
        await store.close()
