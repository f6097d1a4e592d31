"""One JetStream stream: messages by their sequence, and nothing of what is in them.

Rule: what a server that lags behind does not have yet is never taken for the end: the stream's leader tells where
that is.
"""

import asyncio
import logging
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from nats.aio.msg import Msg
from nats.js.errors import APIError

from voda.domain.errors import StoreUnavailable
from voda.log.jetstream.transport.connection import API, NatsConnection
from voda.log.jetstream.transport.errors import is_conflict, translate_error, translate_errors

_EXPECTED_LAST = "Nats-Expected-Last-Sequence"
_EXPECTED_LAST_OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence"
_EXPECTED_STREAM = "Nats-Expected-Stream"
_STATUS = "Status"
_END_OF_BATCH = "204"
_NOT_FOUND = "404"
_MESSAGE_NOT_FOUND = 10037
_LATELY_NS = 4_000_000_000
"""They hear of each other every second, and elect another leader after four without a word at the earliest."""
_SURE_S = 5.0
"""Whoever still leads so long after it has said something led when it said it."""
_ATTEMPT_S = 2.0
"""Longest wait for the next message of a page; a lost one is asked for again."""
_SHARE = 0.8
"""Of the timeout, after which it is said why nothing was learned."""
_SHORTEST_PAUSE_S = 0.001
_PAUSE_S = 0.05

_log = logging.getLogger(__name__)


class StoredMessage(NamedTuple):
    """A message as kept."""

    sequence: int
    data: bytes

    def has(self, name: bytes) -> bool:
        """Return whether a group's name stands in it."""
        return name in self.data


class MessageStream:
    """See the module.

    Args:
        connection: to the servers.
        name: of the stream, which need not exist.
    """

    def __init__(self, connection: NatsConnection, name: str) -> None:
        self._connection = connection
        self.name = name

    async def api(self, what: str, body: object = None) -> dict[str, Any]:
        """Ask JetStream about the stream, such as `INFO`; see Connection.api.

        Raises:
            NotALog: there is no such stream.
            StoreUnavailable, InvalidInput, StoreNotWritable: see explain.
        """
        try:
            return await self._connection.api(f"STREAM.{what}.{self.name}", body)
        except APIError as error:
            raise translate_error(error, self._connection.place) from error

    async def state(self, *, until: float | None = None) -> dict[str, Any]:
        """Return how far the stream reaches, as its leader knows: first_seq, last_seq, messages, num_deleted.

        A leader that is cut off from the others stays one for up to 20 s, and tells of the stream even then; one that
        still hears of some learns from these within a second that there is another.

        Args:
            until: time of the loop after which it is not asked again; None = in the connection's timeout.

        Raises:
            StoreUnavailable: whoever answers has not heard of most of those who keep the stream, for that long.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connection.timeout_s if until is None else until
        while True:
            info = await self.api("INFO")
            if is_led_by_most(info.get("cluster")):
                found: dict[str, Any] = info["state"]
                return found
            if loop.time() > deadline:
                raise StoreUnavailable(
                    f"{self._connection.place}: the server that answers is cut off from the others that keep the log;"
                    " try again"
                )
            await asyncio.sleep(_PAUSE_S)

    async def prove_led(self) -> None:
        """Return once nobody who was cut off from the others can still lead the stream: ask again then, what it does
        not know by then is lost.

        Raises:
            StoreUnavailable: it is cut off; see state.
        """
        await asyncio.sleep(_SURE_S)
        await self.state()

    async def last_sequence(self) -> int:
        """Return the sequence of the last message; 0 where none was ever written."""
        return int((await self.state())["last_seq"])

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        after: int | None = None,
        replaces: int | None = None,
        wait_s: float | None = None,
    ) -> int:
        """Write a message, durably, and return its sequence.

        Args:
            subject: one of the stream's.
            data: at most the server's max_payload less a kilobyte.
            after: sequence of the message that it must follow; None = any.
            replaces: sequence of the subject's last message (0 = none), which it must take the place of; None = any.
            wait_s: longest wait for the answer; None = the connection's.

        Raises:
            APIError: the stream refuses it (is_conflict: it ends elsewhere).
            StoreUnavailable: no answer: it may or may not be written.
        """
        headers = {_EXPECTED_STREAM: self.name}
        if after is not None:
            headers[_EXPECTED_LAST] = str(after)
        if replaces is not None:
            headers[_EXPECTED_LAST_OF_SUBJECT] = str(replaces)
        answer = msgspec.json.decode((await self._connection.request(subject, data, headers, wait_s=wait_s)).data)
        if "error" in answer:
            raise APIError.from_error(answer["error"])
        return int(answer["seq"])

    async def publish_kept(self, subject: str, data: bytes, *, replaces: int) -> int:
        """Write a message in the place of the subject's last, and return its sequence.

        Raises:
            StoreUnavailable: the subject's last is another, or nobody knows whether it was written.
            StoreNotWritable: there is no room.
        """
        try:
            return await self.publish(subject, data, replaces=replaces)
        except APIError as error:
            if is_conflict(error):
                place = self._connection.place
                raise StoreUnavailable(f"{place}: somebody else is changing where the log begins; try again") from error
            raise translate_error(error, self._connection.place) from error

    async def last_of(self, subject: str) -> StoredMessage | None:
        """Return the last message of a subject, as the leader knows it; None where there is none."""
        try:
            found = await self._connection.api(f"STREAM.MSG.GET.{self.name}", {"last_by_subj": subject})
        except APIError as error:
            if error.err_code == _MESSAGE_NOT_FOUND:
                return None
            raise translate_error(error, self._connection.place) from error
        message = found["message"]
        return StoredMessage(int(message["seq"]), b64decode(message.get("data", "")))

    async def near_last_of(self, subject: str) -> bytes | None:
        """Return the last message of a subject, as some server knows it: fast, and perhaps not yet there."""
        answer = await self._connection.request(f"{API}DIRECT.GET.{self.name}.{subject}")
        if answer.headers and _STATUS in answer.headers:
            return None
        return answer.data

    async def page(self, sequence: int, *, messages: int, most_bytes: int) -> list[StoredMessage]:
        """Return the messages from `sequence` on, as far as some server has them: one at least, or none for now.

        Raises:
            StoreUnavailable: nobody answers.
        """
        request = msgspec.json.encode({"seq": sequence, "batch": messages, "max_bytes": most_bytes})
        client = await self._connection.client()
        queue: asyncio.Queue[Msg] = asyncio.Queue()
        async with translate_errors(self._connection.place):
            inbox = client.new_inbox()
            subscription = await client.subscribe(inbox, cb=queue.put, pending_msgs_limit=0, pending_bytes_limit=0)
            try:
                await client.publish(f"{API}DIRECT.GET.{self.name}", request, reply=inbox)
                return await self._batch(queue)
            finally:
                # While the connection is made again, too: with it, all subscriptions come back that were not given up.
                if not client.is_closed:
                    await subscription.unsubscribe()

    async def all_behind(self, sequence: int, *, messages: int, most_bytes: int) -> list[StoredMessage]:
        """Return the messages from `sequence` on: a page of them; none only where the stream's leader has no more.

        Raises:
            StoreUnavailable: the leader says that there are more, but nobody has them.
        """
        pause_s = _SHORTEST_PAUSE_S
        until = asyncio.get_running_loop().time() + _SHARE * self._connection.timeout_s
        async with translate_errors(self._connection.place), asyncio.timeout(self._connection.timeout_s):
            while True:
                if page := await self._try_page(sequence, messages, most_bytes):
                    return page
                state = await self.state(until=until)
                if int(state["last_seq"]) < sequence or not state["messages"]:
                    return []
                # A follower that lags behind the leader by an instant.
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S)

    async def _try_page(self, sequence: int, messages: int, most_bytes: int) -> list[StoredMessage]:
        try:
            return await self.page(sequence, messages=messages, most_bytes=most_bytes)
        except StoreUnavailable as error:
            _log.debug("page asked for again stream=%s sequence=%d reason=%s", self.name, sequence, error)
            await asyncio.sleep(_PAUSE_S)
            return []

    async def _batch(self, queue: "asyncio.Queue[Msg]") -> list[StoredMessage]:
        found: list[StoredMessage] = []
        try:
            while True:
                async with asyncio.timeout(_ATTEMPT_S):
                    message = await queue.get()
                headers = message.headers or {}
                status = headers.get(_STATUS, "")
                if status in (_END_OF_BATCH, _NOT_FOUND):
                    return found
                if status:
                    raise StoreUnavailable(f"{self._connection.place} does not answer: status {status}; try again")
                # A connection lost and made again may have cost some in between, or the first.
                if int(headers["Nats-Last-Sequence"]) != (found[-1].sequence if found else 0):
                    return found
                found.append(StoredMessage(int(headers["Nats-Sequence"]), message.data))
        except TimeoutError:
            if found:
                return found
            raise


def is_led_by_most(cluster: Mapping[str, Any] | None) -> bool:
    """Return whether a stream's leader has lately heard of a majority.

    Args:
        cluster: as the server tells of those who keep the stream; None = a server that is no cluster's.
    """
    if not cluster:
        return True
    others = cluster.get("replicas") or ()
    # Of one that was never heard of the server tells 0.
    heard = sum(not other.get("offline") and 0 < other.get("active", 0) < _LATELY_NS for other in others)
    return bool(cluster.get("leader")) and 2 * (1 + heard) > 1 + len(others)
