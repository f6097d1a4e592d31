"""Alembic's entry: runs the revisions on the connection that voda hands over.

Rule: voda owns the transaction, so a migration happens whole or not at all.
"""

from alembic import context
from sqlalchemy import Connection

from voda.log.sql.schema import REVISION_TABLE, metadata

connection = context.config.attributes.get("connection")
if not isinstance(connection, Connection):
    raise SystemExit("migrations run by 'voda log migrate URL' (a new revision: see CONTRIBUTING.md)")
context.configure(connection=connection, target_metadata=metadata, version_table=REVISION_TABLE)
with context.begin_transaction():
    context.run_migrations()
