"""Brings the tables of a log to today's revision.

Rule: runs inside the caller's transaction, and never touches tables that a newer version or somebody else made.
"""

from pathlib import Path
from threading import Lock

from sqlalchemy import Connection

import voda

# Alembic keeps what it is at in a module's globals.
_ONE_AT_A_TIME = Lock()


def upgrade(connection: Connection) -> None:
    """Run all revisions that the database lacks; the caller commits."""
    # Hardly any start has something to migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(revisions_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        command.upgrade(config, "head")


def revisions_folder() -> Path:
    """Return the folder of the revisions: inside an installed package, beside it in a checkout."""
    package = Path(voda.__file__).parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"
