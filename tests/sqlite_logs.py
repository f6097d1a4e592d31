"""SQLite logs on disk for tests: filled, looked at, and altered behind voda's back."""

import shutil
import sqlite3
from pathlib import Path

from tests.builders import a_fact
from voda.log.archive.verify import verify_log
from voda.log.factory import open_store


async def fill(path: Path, events: int) -> None:
    """Append so many events to two streams of a log, and close it."""
    store = await open_store(path)
    for number in range(events):
        await store.append(f"job.{number % 2}", -1, [a_fact(str(number))])
    await store.close()


async def leave_killed(path: Path, folder: Path) -> None:
    """Leave a log of 60 events, of which 40 are in the journal that a killed writer left beside it.

    Args:
        path: of the log.
        folder: another, to work in.
    """
    work = folder / path.name
    await fill(work, 20)
    store = await open_store(work)
    for number in range(40):
        await store.append("job.c", number, [a_fact(f"c{number}")])
    for suffix in ("", "-wal", "-end"):
        shutil.copy(f"{work}{suffix}", f"{path}{suffix}")
    await store.close()


def behind_vodas_back(path: Path, statement: str, *parameters: object) -> None:
    """Run a statement on the file, as a foreign program would."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, parameters)
    connection.close()


async def position_of(path: Path) -> int:
    """Return the last position that a reader finds."""
    store = await open_store(path, read_only=True)
    try:
        return await store.position()
    finally:
        await store.close()


async def verified(path: Path) -> str:
    """Return what is wrong with the log; empty where nothing is."""
    store = await open_store(path, read_only=True)
    try:
        return (await verify_log(store)).problem
    finally:
        await store.close()
