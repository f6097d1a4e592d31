"""The revisions in migrations/ lead to the tables that the code speaks of."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from tests.builders import a_fact
from tests.sqlite_logs import fill, verified
from voda.domain.errors import InvalidInput, NotALog
from voda.log.factory import open_store
from voda.log.sql import schema
from voda.log.sql import sqlite_file as file
from voda.log.sql.postgres import PostgresDatabase
from voda.log.sql.schema import revisions_folder


@pytest.fixture
def tomorrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes this version the next one, which has a revision more; its tables differ by an index."""
    folder = tmp_path / "migrations"
    shutil.copytree(revisions_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    today = schema.REVISIONS[-1]
    (folder / "versions" / "tomorrow.py").write_text(
        f"from alembic import op\n\nrevision = 'tomorrow'\ndown_revision = '{today}'\n\n\n"
        "def upgrade():\n    op.create_index('tomorrow', 'events', ['type'])\n"
    )

    def come() -> None:
        monkeypatch.setattr(schema, "REVISIONS", (*schema.REVISIONS, "tomorrow"))
        monkeypatch.setattr(schema, "revisions_folder", lambda: folder)

    return come


async def test_older_sqlite_log_is_migrated_when_opened_for_writing_and_not_before(
    tmp_path: Path, tomorrow: Callable[[], None]
) -> None:
    path = tmp_path / "log.db"
    await fill(path, 3)
    before = path.read_bytes()
    tomorrow()
    with pytest.raises(InvalidInput, match=f"written by an older voda: run 'voda log migrate {path}' first"):
        await open_store(path, read_only=True)
    assert path.read_bytes() == before
    opened = await asyncio.gather(open_store(path), open_store(path))
    assert await opened[0].append("job.new", 0, [a_fact("new")]) == 4
    for store in opened:
        await store.close()
    assert await verified(path) == ""


@pytest.mark.postgres
async def test_older_postgresql_log_is_migrated_by_command_alone(
    postgres_database: str, tomorrow: Callable[[], None]
) -> None:
    await PostgresDatabase.migrate(postgres_database)
    tomorrow()
    for read_only in (True, False):
        with pytest.raises(NotALog, match="holds the log of an older voda: run 'voda log migrate"):
            await open_store(postgres_database, read_only=read_only)
    await PostgresDatabase.migrate(postgres_database)
    store = await open_store(postgres_database)
    assert await store.append("job.new", 0, [a_fact("new")]) == 1
    await store.close()


def test_new_sqlite_log_is_laid_out_as_all_revisions_together_do() -> None:
    found = []
    for lay_out in (schema.create, schema.upgrade):
        with create_engine("sqlite://").begin() as connection:
            lay_out(connection)
            tables = connection.exec_driver_sql(
                "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
            ).all()
            found.append((tables, connection.exec_driver_sql(schema.KNOWN_REVISION).all()))
    assert found[0] == found[1]


def test_revisions_in_the_code_are_those_in_the_folder() -> None:
    config = Config()
    config.set_main_option("script_location", str(revisions_folder()))
    found = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(found)) == schema.REVISIONS


def test_tables_after_all_revisions_are_those_of_the_code(tmp_path: Path) -> None:
    file.create(tmp_path / "log.db")
    engine = create_engine(f"sqlite:///{tmp_path / 'log.db'}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.REVISION_TABLE})
        assert compare_metadata(context, schema.metadata) == []
    engine.dispose()
