"""A log in NATS JetStream: events as messages of a stream. Others use what is here, and nothing of the modules within.

In reading order: `messages`, `state` and `index` (all pure), `marks` (records beside the stream), `synced_log` (state
and stream in step), `reader`, `writer`, `settings`, the `store` over them, and the `lease` beside it;
`transport/` is the way to the servers. Rule: nats-py is imported with the first log in NATS, not with this package.
"""

from voda import config
from voda.clock import Clock
from voda.domain.lease import LeaseStore
from voda.log.jetstream.transport.url import is_nats, parse_url
from voda.log.store import DurableStore, EventStore

__all__ = ["display_name", "is_nats", "lease_of", "migrate", "open_store"]


def display_name(url: str) -> str:
    """Return a log's URL without password and options."""
    return parse_url(url).place


async def open_store(url: str, *, read_only: bool, timeout_s: float) -> DurableStore:
    """Open a log; see voda.log.factory.open_store."""
    config.require("nats")
    from voda.log.jetstream.store import JetStreamStore

    return await JetStreamStore.open(url, read_only=read_only, timeout_s=timeout_s)


async def migrate(url: str) -> None:
    """Make the streams of a log, or bring them to the settings of this version."""
    config.require("nats")
    from voda.log.jetstream.store import JetStreamStore

    await JetStreamStore.migrate(url)


def lease_of(store: EventStore, name: str, *, clock: Clock) -> LeaseStore | None:
    """Return the access to the Lease beside a log; None if the log is in another store."""
    from voda.log.jetstream.lease import JetStreamLease
    from voda.log.jetstream.store import JetStreamStore

    return JetStreamLease(store.connection, name, clock=clock) if isinstance(store, JetStreamStore) else None
