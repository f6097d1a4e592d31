"""The revisions in migrations/ lead to the tables that the code speaks of."""

from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from voda.events.sql import schema, sqlite_file
from voda.events.sql.migrate import revisions_folder


def test_revisions_in_the_code_are_those_in_the_folder() -> None:
    config = Config()
    config.set_main_option("script_location", str(revisions_folder()))
    found = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(found)) == schema.REVISIONS


def test_tables_after_all_revisions_are_those_of_the_code(tmp_path: Path) -> None:
    sqlite_file.create(tmp_path / "log.db")
    engine = create_engine(f"sqlite:///{tmp_path / 'log.db'}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.REVISION_TABLE})
        assert compare_metadata(context, schema.metadata) == []
    engine.dispose()
