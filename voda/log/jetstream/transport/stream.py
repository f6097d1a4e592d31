"""One JetStream stream: reads and writes messages by their sequence, whatever they contain.

Rule: the end of the stream is what its leader says; a server that lags behind may not have the last messages yet.
"""

import asyncio
import logging
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from nats.aio.msg import Msg
from nats.js.errors import APIError

from voda.domain.errors import LogDamaged, StoreUnavailable
from voda.log.jetstream.transport.client import translate_error, translate_errors
from voda.log.jetstream.transport.connection import API, NatsConnection, answer_of

_EXPECTED_LAST = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence"
_EXPECTED_STREAM = "Nats-Expected-Stream"
_STATUS = "Status"
_END_OF_BATCH = "204"
_NOT_FOUND = "404"
_MESSAGE_NOT_FOUND = 10037
_LATELY_NS = 4_000_000_000
"""Servers hear of each other every second, and elect another leader after four seconds of silence at the earliest."""
_SURE_S = 5.0
"""A server that leads so long after an answer led at the time of the answer."""
_ATTEMPT_S = 2.0
"""Longest wait for the next message of a page; a lost one is requested again."""
_SHARE = 0.8
"""After this share of the timeout the reason of a failure is raised."""
_SHORTEST_PAUSE_S = 0.001
_PAUSE_S = 0.05

_log = logging.getLogger(__name__)


class EndsEarly(StoreUnavailable):
    """The leader of a stream does not know the last messages that this process has read: not yet, or they are lost."""


class StoredMessage(NamedTuple):
    """A message in the stream."""

    sequence: int
    data: bytes


class MessageStream:
    """See the module; the stream need not exist."""

    def __init__(self, connection: NatsConnection, name: str) -> None:
        self._connection = connection
        self.name = name
        self._known = 0
        """Sequence of the last message that this process has read or written."""

    async def api(self, what: str, body: object = None) -> dict[str, Any]:
        """Call JetStream's API for the stream, such as `INFO`; raises NotALog if there is no such stream."""
        async with translate_errors(self._connection.place):
            return await self._connection.api(f"STREAM.{what}.{self.name}", body)

    async def state(self, *, until: float | None = None) -> dict[str, Any]:
        """Return the state of the stream, as its leader knows it: first_seq, last_seq, messages, num_deleted.

        A leader that is cut off from the others stays leader for up to 20 s, and answers even then; if it still hears
        some of them, it learns within a second that there is another leader. One that was just elected may not know
        the last messages yet. So it is asked again until it has heard of a majority, and knows what this process does.

        Args:
            until: time of the loop when it gives up; None: after the connection's timeout.

        Raises:
            EndsEarly: the leader does not know what this process has read.
            StoreUnavailable: there is no leader that has heard of a majority.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connection.timeout_s if until is None else until
        # Read first: this process may read and write meanwhile.
        known, place = self._known, self._connection.place
        while True:
            info = await self.api("INFO")
            found: dict[str, Any] = info["state"]
            is_led = is_led_by_most(info.get("cluster"))
            if is_led and int(found["last_seq"]) >= known:
                return found
            if loop.time() > deadline:
                break
            await asyncio.sleep(_PAUSE_S)
        if is_led:
            raise EndsEarly(f"{place}: the server that leads the log does not know its last events; try again")
        raise StoreUnavailable(
            f"{place}: the server that answers is cut off from the others that keep the log; try again"
        )

    async def _refuse_loss(self, known: int) -> None:
        """Raise LogDamaged if a message that was read is certainly gone."""
        # If it leads even after this time, it led when it answered.
        await asyncio.sleep(_SURE_S)
        info = await self.api("INFO")
        if int(info["state"]["last_seq"]) < known and is_led_by_most(info.get("cluster")):
            raise LogDamaged(
                f"{self._connection.place}: message {known} of the stream {self.name} is gone: the servers have"
                " lost events that they had acknowledged; stop all who write to it, and restore it from a copy"
            )

    async def prove_led(self) -> None:
        """Return once no server that was cut off can still lead the stream; messages unknown after that are lost."""
        await asyncio.sleep(_SURE_S)
        await self.state()

    async def last_sequence(self) -> int:
        """Return the sequence of the last message, 0 where none was ever written; raises LogDamaged if any are lost."""
        known = self._known
        try:
            return int((await self.state())["last_seq"])
        except EndsEarly:
            await self._refuse_loss(known)
            raise

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        after: int | None = None,
        headers: Mapping[str, str] = {},
        wait_s: float | None = None,
    ) -> int:
        """Write a message, durably, and return its sequence.

        Args:
            subject: one of the stream's.
            data: at most the server's max_payload minus a kilobyte.
            after: sequence of the message that it must follow; None = any.
            headers: further ones, such as EXPECTED_LAST_OF_SUBJECT: the sequence of the last message of the subject
                (0 = none), which it must replace.
            wait_s: longest wait for the answer; None = the connection's.

        Raises:
            ChangedMeanwhile: the stream, or the subject, ends elsewhere.
            StoreNotWritable, InvalidInput: the stream refuses it.
            StoreUnavailable: no answer: it may or may not be written.
        """
        self._connection.refuse_read_only()
        headers = {_EXPECTED_STREAM: self.name, **headers}
        if after is not None:
            headers[_EXPECTED_LAST] = str(after)
        async with translate_errors(self._connection.place):
            sequence = int(answer_of(await self._connection.request(subject, data, headers, wait_s=wait_s))["seq"])
        self._known = max(self._known, sequence)
        return sequence

    async def purge(self, what: Mapping[str, object]) -> None:
        """Delete messages: of a subject (`filter`), or all before a sequence (`seq`)."""
        self._connection.refuse_read_only()
        await self.api("PURGE", what)

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

    async def page(self, sequence: int, *, messages: int, most_bytes: int) -> list[StoredMessage]:
        """Return a page of messages from `sequence` on, as far as the nearest server has them."""
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
                # Even without a connection: a reconnection renews all subscriptions.
                if not client.is_closed:
                    await subscription.unsubscribe()

    async def all_behind(self, sequence: int, *, messages: int, most_bytes: int) -> list[StoredMessage]:
        """Return a page of messages from `sequence` on; an empty one only if the stream's leader has no more.

        Raises:
            LogDamaged: messages that this process has read are lost.
            StoreUnavailable: there is no certain answer within the connection's timeout.
        """
        known, pause_s = self._known, _SHORTEST_PAUSE_S
        until = asyncio.get_running_loop().time() + _SHARE * self._connection.timeout_s
        try:
            async with translate_errors(self._connection.place), asyncio.timeout(self._connection.timeout_s):
                while True:
                    if page := await self._try_page(sequence, messages, most_bytes):
                        return page
                    state = await self.state(until=until)
                    if int(state["last_seq"]) < sequence or not state["messages"]:
                        return []
                    # The server that answered lags behind the leader.
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_S)
        except EndsEarly:
            await self._refuse_loss(known)
            raise

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
                # A reconnection may have lost messages in between, or the first.
                if int(headers["Nats-Last-Sequence"]) != (found[-1].sequence if found else 0):
                    return found
                found.append(StoredMessage(int(headers["Nats-Sequence"]), message.data))
                self._known = max(self._known, found[-1].sequence)
        except TimeoutError:
            if found:
                return found
            raise


def is_led_by_most(cluster: Mapping[str, Any] | None) -> bool:
    """Return whether a stream's leader has lately heard of a majority; None = a single server."""
    if not cluster:
        return True
    others = cluster.get("replicas") or ()
    # 0 = never heard of.
    heard = sum(not other.get("offline") and 0 < other.get("active", 0) < _LATELY_NS for other in others)
    return bool(cluster.get("leader")) and 2 * (1 + heard) > 1 + len(others)
