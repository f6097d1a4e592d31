"""Finds the Lease in a log's own store, so that replicas need nothing else to elect their leader.

Rule: the store that decides who leads is the one that refuses the decisions of a former leader.
"""

from pathlib import Path
from typing import Final

from voda.clock import Clock
from voda.domain.errors import InvalidInput
from voda.domain.lease import LeaseStore
from voda.log.lease.sqlite import SqliteLease
from voda.log.sql.sqlite import SqliteDatabase
from voda.log.sql.store import SqlStore
from voda.log.store import EventStore

NAME: Final = "leader"
"""Of the Lease of a log."""


def lease_of(store: EventStore, name: str = NAME, *, clock: Clock) -> LeaseStore:
    """Return a candidate's access to the Lease in the store of a log; nothing is opened or to be closed.

    Args:
        store: opened for appending; it must stay open while the Lease is used.
        name: the same for all candidates; of letters, digits, `-` and `.`.
        clock: dates renewals, for people to read.

    Raises:
        InvalidInput: the store has no Leases.
    """
    if isinstance(store, SqlStore) and isinstance(store.database, SqliteDatabase):
        return SqliteLease(Path(store.database.place), name, clock=clock)
    # Imported only when needed, as in voda.log.factory.
    from voda.log.jetstream.store import JetStreamStore
    from voda.log.lease.jetstream import JetStreamLease
    from voda.log.lease.postgres import PostgresLease
    from voda.log.sql.postgres import PostgresDatabase

    if isinstance(store, SqlStore) and isinstance(store.database, PostgresDatabase):
        return PostgresLease(store.database, name)
    if isinstance(store, JetStreamStore):
        return JetStreamLease(store.connection, name, clock=clock)
    raise InvalidInput(
        f"a log in {type(store).__name__} elects no leader: expected SQLite, PostgreSQL or NATS JetStream"
    )
