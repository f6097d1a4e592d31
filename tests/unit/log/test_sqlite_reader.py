"""The reading connection of an SQLite log, when the file changes under it."""

import asyncio
import sqlite3
from pathlib import Path
from threading import Event

import pytest

from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobCompleted
from voda.log.factory import open_store
from voda.log.sql import sqlite_file as file
from voda.log.sql.sqlite import _RowReader

_WAIT_S = 30.0
_COUNT = "SELECT count(*) FROM events"


async def _append(path: Path, job_id: str) -> None:
    store = await open_store(str(path))
    fact = Fact(data=JobCompleted(job_id=job_id), event_id=job_id, recorded_at=1.0)
    await store.append(f"job.{job_id}", ANY_VERSION, [fact])
    await store.close()


async def test_reader_when_cancelled_while_it_opens_a_changed_file_again_reads_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.db"
    await _append(path, "a")
    reader = _RowReader(path)
    await reader.open()
    assert await reader.fetch(_COUNT, {}) == [(1,)]
    await _append(path, "b")

    opens, may_open = Event(), Event()
    open_reader = file.open_reader

    def slow_open(path: Path) -> tuple[sqlite3.Connection, file.Stamp | None]:
        opens.set()
        assert may_open.wait(_WAIT_S)
        return open_reader(path)

    monkeypatch.setattr(file, "open_reader", slow_open)
    reading = asyncio.create_task(reader.fetch(_COUNT, {}))
    assert await asyncio.to_thread(opens.wait, _WAIT_S)
    reading.cancel()
    may_open.set()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert await reader.fetch(_COUNT, {}) == [(2,)]
    await reader.close()
