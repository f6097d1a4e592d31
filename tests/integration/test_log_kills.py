"""Copies and trims, killed with SIGKILL at any moment, again and again: nothing is lost, and what
comes of it in the end is the same, byte for byte, as if nothing had happened.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.builders import a_fact
from tests.nats import NatsServer
from tests.postgres import Server
from voda.domain.rng import rng_at
from voda.events.envelope import ANY_VERSION, Sealed
from voda.log.archive import copy
from voda.log.archive.archive import Archive, verify_archive
from voda.log.archive.archive_backed_store import ArchiveBackedStore
from voda.log.archive.copy import copy_log, copy_to_folder
from voda.log.archive.retention import archive_log
from voda.log.archive.verify import HashChain, verify_log
from voda.log.factory import open_log, open_store
from voda.log.jetstream.store import JetStreamStore
from voda.log.sql import store as sql_store
from voda.log.sql.postgres import PostgresDatabase

KILLS = 30
EVENTS = 3_000
STREAMS = 17
WAIT_S = 120.0
KEPT = 500
# Forked from a process that has everything imported: a kill hits the work, not the start.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])

pytestmark = pytest.mark.slow

Work = Callable[..., None]


def _in_small_steps() -> None:
    """Have more moments between two steps, at which a kill may come."""
    vars(copy)["PAGE"] = 100
    vars(copy)["SEGMENT_EVENTS"] = 170
    vars(sql_store)["_SWEEP"] = 90


def _copy(source: str, target: str) -> None:
    async def run() -> None:
        here, there = await open_log(source), await open_store(target)
        await copy_log(here, there)
        await there.close()
        await here.close()

    _in_small_steps()
    asyncio.run(run())


def _back_up(source: str, folder: str) -> None:
    async def run() -> None:
        log = await open_log(source)
        await copy_to_folder(log, Path(folder))
        await log.close()

    _in_small_steps()
    asyncio.run(run())


def _archive(log: str, folder: str) -> None:
    async def run() -> None:
        store = await open_store(log)
        for until in range(KEPT, EVENTS - KEPT + 1, KEPT):
            await archive_log(store, Path(folder), until=until)
        await store.close()

    _in_small_steps()
    asyncio.run(run())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log in many streams."""

    async def fill() -> None:
        store = await open_store(tmp_path / "log.db")
        for number in range(0, EVENTS, 3):
            facts = [a_fact(str(number + more), at=float(number)) for more in range(3)]
            await store.append(f"job.{number % STREAMS}", ANY_VERSION, facts)
        await store.close()

    asyncio.run(fill())
    return tmp_path / "log.db"


def events(place: str | Path, archive: Path | None = None) -> Sequence[Sealed]:
    """Return all events, those of the archive first."""

    async def read() -> Sequence[Sealed]:
        store = await open_log(place, archive=archive)
        try:
            return await store.read_sealed(0, EVENTS + 1)
        finally:
            await store.close()

    return asyncio.run(read())


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def finished(process: BaseProcess) -> BaseProcess:
    process.join(WAIT_S)
    assert process.exitcode == 0, f"it ended with {process.exitcode}"
    return process


def started(work: Work, *arguments: object) -> BaseProcess:
    process = PROCESSES.Process(target=work, args=[str(argument) for argument in arguments])
    process.start()
    return process


def killed_at_random(work: Work, target: Callable[[int], Sequence[object]], check: Callable[[int], None]) -> int:
    """Run the work, killing it at random moments, until it was killed often enough; then let it finish.

    Args:
        work: what is run.
        target: its arguments in a round; a round ends when the work did.
        check: is called after every kill.

    Returns:
        The last round, which is finished.
    """
    finished(started(work, *target(0)))
    began = time.perf_counter()
    finished(started(work, *target(1)))
    took_s = time.perf_counter() - began
    rng = rng_at(7, 0)
    kills, current = 0, 2
    while kills < KILLS:
        process = started(work, *target(current))
        process.join(took_s * float(rng.random()))
        process.kill()
        process.join(WAIT_S)
        if process.exitcode == 0:
            current += 1
        else:
            kills += 1
            check(current)
    finished(started(work, *target(current)))
    return current


@pytest.mark.parametrize("is_from_a_folder", [False, True])
def test_copy_killed_again_and_again_is_the_log(log: Path, tmp_path: Path, is_from_a_folder: bool) -> None:
    whole, source = events(log), log
    if is_from_a_folder:
        finished(started(_back_up, log, source := tmp_path / "backup"))

    def place(number: int) -> Path:
        return tmp_path / f"copy{number}.db"

    def check(number: int) -> None:
        if place(number).exists():
            found = events(place(number))
            assert found == whole[: len(found)]

    last = killed_at_random(_copy, lambda number: (source, place(number)), check)
    assert all(events(place(number)) == whole for number in range(last + 1))
    assert asyncio.run(_verified(place(last))) == ""


@pytest.mark.postgres
def test_copy_to_postgresql_killed_again_and_again_is_the_log(log: Path, postgres_server: Server) -> None:
    def make() -> str:
        url = postgres_server.create_database()
        asyncio.run(PostgresDatabase.migrate(url))
        return url

    _prove_copies_whole(log, make)


@pytest.mark.nats
def test_copy_to_jetstream_killed_again_and_again_is_the_log(log: Path, nats_server: NatsServer) -> None:
    def make() -> str:
        url = nats_server.url()
        asyncio.run(JetStreamStore.migrate(url))
        return url

    _prove_copies_whole(log, make)


def _prove_copies_whole(log: Path, make: Callable[[], str]) -> None:
    whole, urls = events(log), dict[int, str]()

    def url(number: int) -> str:
        if number not in urls:
            urls[number] = make()
        return urls[number]

    def check(number: int) -> None:
        found = events(url(number))
        assert found == whole[: len(found)]

    last = killed_at_random(_copy, lambda number: (log, url(number)), check)
    assert events(url(last)) == whole
    assert asyncio.run(_verified(url(last))) == ""


def test_backup_killed_again_and_again_is_the_same_folder(log: Path, tmp_path: Path) -> None:
    def place(number: int) -> Path:
        return tmp_path / f"backup{number}"

    def check(number: int) -> None:
        if place(number).exists():
            archive = Archive.open(place(number))
            assert verify_archive(archive, HashChain()).is_intact

    last = killed_at_random(_back_up, lambda number: (log, place(number)), check)
    assert all(files(place(number)) == files(place(0)) for number in range(last + 1))
    assert events(place(last)) == events(log)


def test_archive_killed_again_and_again_loses_nothing(log: Path, tmp_path: Path) -> None:
    whole, content = events(log), log.read_bytes()

    def place(number: int) -> tuple[Path, Path]:
        found = tmp_path / f"log{number}.db"
        if not found.exists():
            found.write_bytes(content)
        return found, tmp_path / f"archive{number}"

    def check(number: int) -> None:
        found, folder = place(number)
        assert events(found, folder if folder.exists() else None) == whole

    last = killed_at_random(_archive, place, check)
    for number in range(last + 1):
        found, folder = place(number)
        assert files(folder) == files(place(0)[1])
        assert events(found, folder) == whole
        assert asyncio.run(_base(found)) == EVENTS - KEPT
    assert asyncio.run(_verified(place(last)[0])) == ""


async def _verified(place: str | Path) -> str:
    store = await open_store(place, read_only=True)
    try:
        return (await verify_log(store)).problem
    finally:
        await store.close()


async def _base(place: Path) -> int:
    store = await open_store(place)
    try:
        base = await store.base()
        # Nothing of what was forgotten is left in the tables either.
        rows = await ArchiveBackedStore(store).read_sealed(base.position, 1)
        assert rows[0].position == base.position + 1
        return base.position
    finally:
        await store.close()
