"""The log of a running service: full disks show until there is room, and damage that no start sees is found at idle."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.builders import a_fact, a_snapshot
from tests.service import a_service
from tests.sqlite_logs import behind_vodas_back, fill
from tests.telemetry import RecordingTelemetry
from tests.waiting import until
from voda.app.log_health import HealthIntervals, LogHealth
from voda.controller.follower import restore
from voda.domain.errors import StoreNotWritable
from voda.events.envelope import ANY_VERSION
from voda.log.archive.verify import Pace, verify_log
from voda.log.factory import open_store
from voda.log.instrumented_store import InstrumentedStore
from voda.log.memory import MemoryStore
from voda.log.sql.sqlite import SqliteDatabase
from voda.log.sql.store import SqlStore
from voda.metrics import LOG_DAMAGED, LOG_VERIFIED
from voda.projections.live import Live

SOON = HealthIntervals(trial_s=0.01, first_s=0.0, every_s=0.05, retry_s=0.05)


@asynccontextmanager
async def watched(health: LogHealth) -> AsyncIterator[None]:
    """Have a log watched for the length of the block."""
    tasks = [asyncio.create_task(health.follow()), asyncio.create_task(health.verify())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


# ---- full disk


async def test_readiness_when_the_disk_is_full_is_denied_until_there_is_room_without_an_append(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await fill(path, 6)
    database = await SqliteDatabase.open(path)
    store = InstrumentedStore(SqlStore(database))
    health = LogHealth(store, str(path), intervals=SOON)
    async with a_service(not_ready=lambda: health.failure) as service, watched(health):
        await database.write([("PRAGMA max_page_count = 1", {})])
        with pytest.raises(StoreNotWritable):
            await store.append("job.b", ANY_VERSION, [a_fact(f"large.{number}") for number in range(2000)])
        answer = await service.ask("GET", "/readyz")
        assert answer.status == 503
        assert "the disk is full; free some space" in answer.json()["detail"]

        await database.write([("PRAGMA max_page_count = 100000", {})])
        await until(lambda: not health.failure)
        assert (await service.ask("GET", "/readyz")).status == 200
    # What the trial left is a snapshot like any other.
    assert (await verify_log(store)).is_intact
    await store.close()


async def test_readiness_when_an_append_succeeds_again_is_back_at_once(tmp_path: Path) -> None:
    database = await SqliteDatabase.open(await _made(tmp_path / "log.db"))
    store = InstrumentedStore(SqlStore(database))
    health = LogHealth(store, database.place)
    await database.write([("PRAGMA max_page_count = 1", {})])
    with pytest.raises(StoreNotWritable):
        await store.append("job.b", ANY_VERSION, [a_fact(f"large.{number}") for number in range(2000)])
    assert "the disk is full" in health.failure
    await database.write([("PRAGMA max_page_count = 100000", {})])
    await store.append("job.b", ANY_VERSION, [a_fact("small")])
    assert health.failure == ""
    await store.close()


async def _made(path: Path) -> Path:
    await fill(path, 6)
    return path


# ---- damage before the last snapshot


@pytest.fixture
async def damaged(tmp_path: Path) -> Path:
    """Where a log lies whose third event was changed, behind which there is a snapshot."""
    path = await _made(tmp_path / "log.db")
    store = await open_store(path)
    await store.snapshots.save(a_snapshot(Live.FORMAT, 6, Live().dump(), heads=await store.heads()))
    await store.close()
    behind_vodas_back(path, "UPDATE events SET body = replace(body, 'actor', 'bctor') WHERE position = 3")
    return path


async def test_log_when_damaged_before_its_snapshot_is_started_on_and_found_out_in_the_background(
    damaged: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, telemetry = await open_store(damaged), RecordingTelemetry()
    assert await restore(store, Live()) == 6
    health = LogHealth(InstrumentedStore(store), str(damaged), telemetry, SOON)
    with caplog.at_level(logging.INFO, "voda.app.log_health"):
        async with a_service(health_warning=lambda: health.warning) as service, watched(health):
            assert (await service.ask("GET", "/readyz")).body == b"ready\n"
            await until(lambda: bool(health.warning))
            await until(lambda: telemetry.settings(LOG_DAMAGED) >= [1, 1])
            answer = await service.ask("GET", "/readyz")
    assert answer.status == 200
    expected = f"warning: the log is damaged at position 3: `voda log verify {damaged}` says how, docs/backup.md what"
    assert answer.body.decode().startswith(f"ready\n{expected} to do\n")
    assert telemetry.settings(LOG_VERIFIED)[0] == 2
    # Once, though it was found again and again.
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("log damaged position=3 reason=position 3: the checksum does not fit the event")
    assert line.endswith(f"see `voda log verify {damaged}`")
    await store.close()


async def test_log_when_intact_is_verified_to_its_end_and_nothing_is_warned_of(tmp_path: Path) -> None:
    path, telemetry = await _made(tmp_path / "log.db"), RecordingTelemetry()
    health = LogHealth(InstrumentedStore(MemoryStore()), str(path), telemetry, SOON)
    async with watched(health):
        await until(lambda: 6 in telemetry.settings(LOG_VERIFIED))
    assert set(telemetry.settings(LOG_DAMAGED)) == {0}
    assert health.warning == ""


async def test_log_when_it_cannot_be_opened_for_damage_is_warned_of(tmp_path: Path) -> None:
    path = await _made(tmp_path / "log.db")
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (path.stat().st_size - 100))
    health = LogHealth(InstrumentedStore(MemoryStore()), str(path), intervals=SOON)
    async with watched(health):
        await until(lambda: bool(health.warning))


async def test_verification_when_paced_lets_other_work_run_after_every_bounded_page(tmp_path: Path) -> None:
    path, said = tmp_path / "log.db", list[object]()
    await fill(path, 25)
    store = await open_store(path, read_only=True)

    async def pause() -> None:
        said.append("pause")

    report = await verify_log(store, progress=lambda done, _: said.append(done), pace=Pace(10, pause))
    assert report.events == 25
    assert said == [10, "pause", 20, "pause", 25, "pause"]
    await store.close()
