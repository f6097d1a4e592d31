"""Keep where a log begins once its older events were archived."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table; a log without a row in it is whole."""
    position = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "archived",
        sa.Column("position", position, primary_key=True, autoincrement=False),
        sa.Column("base", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
