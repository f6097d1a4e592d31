"""Keep snapshots in pieces; those of before are dropped, and the next start reads more of the log."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Replace the table of whole snapshots."""
    op.drop_table("snapshots")
    op.create_table(
        "snapshots",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("pieces", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "snapshot_pieces",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True),
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
