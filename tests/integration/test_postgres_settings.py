"""What a PostgreSQL server is set to: what loses events is refused or told, and what a session can set is set."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builders import a_fact
from tests.postgres import Server, plain, serving
from voda.domain.errors import InvalidInput
from voda.log.factory import migrate_log, open_store
from voda.log.sql.postgres import PostgresDatabase
from voda.log.sql.store import SqlStore

pytestmark = pytest.mark.postgres
_ROOT = Path(__file__).parents[2]
_WAIT_S = 120
_SHOW = "SELECT current_setting('synchronous_commit')"


@pytest.fixture
async def url(postgres_database: str) -> str:
    await migrate_log(postgres_database)
    return postgres_database


# ---- a server that does not write to the disk


async def test_server_that_answers_before_it_writes_is_refused_unless_allowed(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    with pytest.raises(InvalidInput, match=r"fsync=off, .* expected fsync=on .*; or add \?sync=any to the URL"):
        await open_store(plain(url))
    with pytest.raises(InvalidInput, match="fsync=off"):
        await open_store(f"{plain(url)}?sync=always")
    assert caplog.messages == []
    store = await open_store(f"{plain(url)}?sync=any")
    await store.append("job.a", 0, [a_fact("1")])
    await store.append("job.a", 1, [a_fact("2")])
    await store.close()
    (said,) = caplog.messages
    assert "fsync=off" in said
    assert ":***@" in said


async def test_server_that_answers_before_it_writes_may_be_read(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    store = await open_store(plain(url), read_only=True)
    assert await store.position() == 0
    await store.close()
    assert caplog.messages == []


def test_migration_on_a_server_that_answers_before_it_writes_says_so(postgres_database: str) -> None:
    command = [sys.executable, "-c", "from voda.cli import main; main()", "log", "migrate", plain(postgres_database)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_WAIT_S, check=False)
    warned, ready = done.stderr.splitlines()
    assert done.returncode == 0
    assert "fsync=off, so a crash of its machine" in warned
    assert "is ready for this version" in ready


async def test_option_that_is_neither_always_nor_any_is_refused(postgres_database: str) -> None:
    with pytest.raises(InvalidInput, match="expected sync=always or sync=any, got 'maybe'"):
        await open_store(f"{plain(postgres_database)}?sync=maybe")


@pytest.mark.slow
@pytest.mark.usefixtures("postgres_server")
async def test_server_in_earnest_is_taken_without_a_word_and_half_written_pages_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(is_durable=True) as server:
        url = server.create_database()
        assert url == plain(url)
        await migrate_log(url)
        await (await open_store(url)).close()
        assert caplog.messages == []
        server.sql(url, "ALTER SYSTEM SET full_page_writes = off")
        server.stop()
        server.start()
        await (await open_store(url)).close()
        (said,) = caplog.messages
        assert "full_page_writes=off, so a power cut may leave pages" in said


# ---- what a session waits for


async def waits_of(url: str) -> Sequence[str]:
    """Return what the sessions of a log wait for at a commit: the one that writes, and one that does all else."""
    store = await open_store(url)
    assert isinstance(store, SqlStore)
    await store.append("job.a", -1, [a_fact(f"at {await store.position()}")])
    waits = await _waits(store)
    await store.close()
    return waits


async def _waits(store: SqlStore) -> Sequence[str]:
    assert isinstance(store.database, PostgresDatabase)
    (other,) = await store.database.fetch(_SHOW, {})
    return [await store.database._writer._driver.fetchval(_SHOW), *other]


@pytest.mark.parametrize(
    ("told", "expected"), [("off", "on"), ("on", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
)
async def test_commit_waits_for_the_disk_at_least_whatever_the_database_is_told(
    url: str, postgres_server: Server, told: str, expected: str
) -> None:
    name = plain(url).rpartition("/")[2]
    postgres_server.sql(url, f"ALTER DATABASE {name} SET synchronous_commit = '{told}'")
    assert postgres_server.sql(url, _SHOW) == told
    assert await waits_of(url) == [expected, expected]


@pytest.mark.slow
@pytest.mark.usefixtures("postgres_server")
async def test_commit_waits_for_the_disk_also_once_the_server_is_told_otherwise_meanwhile() -> None:
    with serving() as server:
        url = server.create_database()
        await migrate_log(url)
        store = await open_store(url)
        assert isinstance(store, SqlStore)
        await store.append("job.a", 0, [a_fact("1")])
        assert await _waits(store) == ["on", "on"]
        server.sql(url, "ALTER SYSTEM SET synchronous_commit = off")
        server.sql(url, "SELECT pg_reload_conf()")
        server.wait_until_set(url, "synchronous_commit", "off")
        await store.append("job.a", 1, [a_fact("2")])
        assert await _waits(store) == ["on", "on"]
        await store.close()
