"""Finds the Lease that a log's own store keeps, so that replicas need nothing else to elect their leader.

Rule: the store that judges who leads is the one that refuses a former leader's decisions.
"""

from pathlib import Path
from typing import Final

from voda.clock import Clock
from voda.domain.errors import InvalidInput
from voda.domain.lease import LeaseStore
from voda.log.lease.sqlite import SqliteLease
from voda.log.sql.store import SqlStore
from voda.log.sqlite.database import SqliteDatabase
from voda.log.store import EventStore

NAME: Final = "leader"
"""Of the Lease, where a log has but one."""


def lease_of(store: EventStore, name: str = NAME, *, clock: Clock) -> LeaseStore:
    """Return one candidate's way to a Lease in the store of a log; nothing is opened, and nothing need be closed.

    Args:
        store: as it was opened for appending; open for as long as the Lease is campaigned for.
        name: the same for all candidates; of letters, digits, `-` and `.`.
        clock: dates renewals, for people to read.

    Raises:
        InvalidInput: the store elects nobody.
    """
    if isinstance(store, SqlStore) and isinstance(store.database, SqliteDatabase):
        return SqliteLease(Path(store.database.place), name, clock=clock)
    # Imported only now, as in opening.py.
    from voda.log.jetstream.store import JetStreamStore
    from voda.log.lease.jetstream import JetStreamLease
    from voda.log.lease.postgres import PostgresLease
    from voda.log.postgres.database import PostgresDatabase

    if isinstance(store, SqlStore) and isinstance(store.database, PostgresDatabase):
        return PostgresLease(store.database, name)
    if isinstance(store, JetStreamStore):
        return JetStreamLease(store.connection, name, clock=clock)
    raise InvalidInput(
        f"a log in {type(store).__name__} elects no leader: expected SQLite, PostgreSQL or NATS JetStream"
    )
