"""The Lease in NATS JetStream: a key of a key-value bucket, which the server deletes once it is not renewed.

Rules: the key is changed only by compare-and-set on its revision; the server decides when it expires, by the time to
live that each renewal gives it; the bucket has as many replicas as the log.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec
from nats.js.api import KeyValueConfig
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from voda.clock import Clock
from voda.domain.errors import ChangedMeanwhile, InvalidInput, StoreUnavailable
from voda.domain.lease import Lease
from voda.log.jetstream.transport.client import NOT_READY, STREAM_NOT_FOUND, is_conflict, translate_errors
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.lease.record import LeaseRecord, poll

_NOTHING_THERE: Final = 10037
"""JetStream's code for a key without a value."""
_FIRST_WITH_TTL: Final = (2, 11)
_NEVER: Final = "0"
"""Revision of a key that is not there."""
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
        self._stream = f"KV_{self._bucket}"
        self._subject = f"$KV.{self._bucket}.{name}"
        self._nudge = asyncio.Event()
        connection.on_reconnect(self._nudge.set)

    async def read(self) -> Lease | None:
        jetstream = await self._connection.jetstream()
        async with translate_errors(self._connection.place):
            try:
                found = await jetstream.get_last_msg(self._stream, self._subject)
            except APIError as error:
                if error.err_code == _NOTHING_THERE:
                    return LeaseRecord().lease(_NEVER)
                if error.err_code == STREAM_NOT_FOUND:
                    return None
                raise
        return LeaseRecord.decode(found.data or b"{}", unreadable_holder="").lease(str(found.seq))

    async def take(self, seen: Lease | None, *, holder: str, transitions: int, duration_s: float) -> Lease:
        """See LeaseStore.take; raises InvalidInput if the server cannot expire keys."""
        if seen is None:
            await self._make()
        record = LeaseRecord.now(self._clock, holder=holder, transitions=transitions, duration_s=duration_s)
        return await self._put(record, seen.version if seen else _NEVER)

    async def renew(self, mine: Lease) -> Lease:
        return await self._put(LeaseRecord.renewed(self._clock, mine), mine.version)

    async def release(self, mine: Lease) -> None:
        await self._put(LeaseRecord(transitions=mine.transitions, duration_s=mine.duration_s), mine.version)

    def watch(self) -> AsyncGenerator[Lease | None, None]:
        """See LeaseStore.watch. The server does not report that a key expired, so it is polled."""
        return poll(self.read, self._nudge)

    async def _put(self, record: LeaseRecord, revision: str) -> Lease:
        # The server takes whole seconds, at least one.
        lives_s = max(1, math.ceil(record.duration_s))
        headers: dict[str, Any] = {"Nats-Expected-Last-Subject-Sequence": revision, "Nats-TTL": f"{lives_s}s"}
        deadline = asyncio.get_running_loop().time() + _UNHEARD_S
        while (sequence := await self._try_put(msgspec.json.encode(record), headers)) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise StoreUnavailable(
                    f"{self._connection.place}: no server leads the bucket {self._bucket}; try again"
                )
            await asyncio.sleep(_BETWEEN_ATTEMPTS_S)
        return record.lease(str(sequence))

    async def _try_put(self, value: bytes, headers: dict[str, Any]) -> int | None:
        """Return the new revision; None if no server answered, and nothing was written."""
        jetstream = await self._connection.jetstream()
        async with translate_errors(self._connection.place):
            try:
                return (await jetstream.publish(self._subject, value, headers=headers)).seq
            except NoStreamResponseError as error:
                await self._refuse_without_bucket(error)
            except APIError as error:
                if is_conflict(error):
                    raise ChangedMeanwhile(f"{self.key} was changed by another candidate") from error
                if error.err_code != NOT_READY:
                    raise
        return None

    async def _refuse_without_bucket(self, error: NoStreamResponseError) -> None:
        """Raise if the bucket does not exist, rather than having no leader for the moment."""
        jetstream = await self._connection.jetstream()
        try:
            await jetstream.stream_info(self._stream)
        except NotFoundError:
            raise ChangedMeanwhile(f"{self.key}: there is no bucket {self._bucket}") from error

    async def _make(self) -> None:
        jetstream = await self._connection.jetstream()
        if _version(self._connection.server_version) < _FIRST_WITH_TTL:
            raise InvalidInput(
                f"{self._connection.place} cannot tell that a leader is silent: expected nats-server 2.11 or newer,"
                f" got {self._connection.server_version}"
            )
        async with translate_errors(self._connection.place):
            log = await jetstream.stream_info(self._connection.location.stream)
            replicas = log.config.num_replicas or 1
            await jetstream.create_key_value(KeyValueConfig(bucket=self._bucket, history=1, replicas=replicas))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
