"""The Lease in NATS JetStream: a key of a key-value bucket, which the server deletes once it is not renewed.

Rules: the key is changed only by compare-and-set on its revision; the server decides when it expires, by the time to
live that each renewal gives it; the bucket has as many replicas as the log.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace
from nats.js.api import Header, KeyValueConfig

from voda.clock import Clock
from voda.domain.errors import ChangedMeanwhile, NotALog, StoreUnavailable
from voda.domain.lease import Lease
from voda.log.jetstream.transport.client import is_unwritten, translate_errors
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.stream import MessageStream
from voda.log.lease.poll import poll

_FREE: Final = Lease(holder="", transitions=0, duration_s=0.0, renewed_at="", version="0", is_enforced=True)
"""Of a key that is not there, whose revision is 0."""
_UNHEARD_S: Final = 1.5
"""For so long a write is repeated while no server leads the bucket; callers give up after twice that."""
_BETWEEN_ATTEMPTS_S: Final = 0.05


class JetStreamLease:
    """See LeaseStore; the clock dates the renewals, for people to read."""

    def __init__(self, connection: NatsConnection, name: str, *, clock: Clock) -> None:
        self.key = f"{name} in {connection.place}"
        self._connection = connection
        self._clock = clock
        self._bucket = f"{connection.location.stream}-leases"
        self._stream = MessageStream(connection, f"KV_{self._bucket}")
        self._subject = f"$KV.{self._bucket}.{name}"
        self._nudge = asyncio.Event()
        connection.on_reconnect(self._nudge.set)

    async def read(self) -> Lease | None:
        try:
            found = await self._stream.last_of(self._subject)
        except NotALog:
            return None
        return _lease_in(found.data, str(found.sequence)) if found else _FREE

    async def take(self, seen: Lease | None, *, holder: str, transitions: int, duration_s: float) -> Lease:
        if seen is None:
            await self._make()
        mine = replace(seen or _FREE, holder=holder, transitions=transitions, duration_s=duration_s)
        return await self.renew(mine)

    async def renew(self, mine: Lease) -> Lease:
        return await self._put(replace(mine, renewed_at=datetime.fromtimestamp(self._clock.now(), UTC).isoformat()))

    async def release(self, mine: Lease) -> None:
        await self._put(replace(mine, holder="", renewed_at=""))

    def watch(self) -> AsyncGenerator[Lease | None, None]:
        """See LeaseStore.watch. The server does not report that a key expired, so it is polled."""
        return poll(self.read, self._nudge)

    async def _put(self, lease: Lease) -> Lease:
        # The server takes whole seconds, at least one.
        lives_s = max(1, math.ceil(lease.duration_s))
        headers = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE: lease.version, "Nats-TTL": f"{lives_s}s"}
        data = msgspec.json.encode(lease)
        deadline = asyncio.get_running_loop().time() + _UNHEARD_S
        while True:
            try:
                sequence = await self._stream.publish(self._subject, data, headers=headers)
                return replace(lease, version=str(sequence))
            except ChangedMeanwhile as error:
                raise ChangedMeanwhile(f"{self.key} was changed by another candidate") from error
            except StoreUnavailable as error:
                if not is_unwritten(error) or asyncio.get_running_loop().time() > deadline:
                    raise
            try:
                await self._stream.api("INFO")
            except NotALog as error:
                raise ChangedMeanwhile(f"{self.key}: there is no bucket {self._bucket}") from error
            await asyncio.sleep(_BETWEEN_ATTEMPTS_S)

    async def _make(self) -> None:
        jetstream = (await self._connection.client()).jetstream()
        async with translate_errors(self._connection.place):
            log = await jetstream.stream_info(self._connection.location.stream)
            replicas = log.config.num_replicas or 1
            await jetstream.create_key_value(KeyValueConfig(bucket=self._bucket, history=1, replicas=replicas))


def _lease_in(data: bytes, version: str) -> Lease:
    """Return the Lease that a key holds; a free one where somebody has written something else by hand."""
    try:
        return replace(msgspec.json.decode(data, type=Lease), version=version)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return replace(_FREE, version=version)
