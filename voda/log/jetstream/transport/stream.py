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
from nats.js.api import Header

from voda.domain.errors import LogDamaged, NotFound, StoreUnavailable
from voda.log.jetstream.transport.client import translate_errors
from voda.log.jetstream.transport.connection import API, NatsConnection

_END_OF_BATCH = "204"
_NOT_FOUND = "404"
_LATELY_NS = 4_000_000_000
"""Servers hear of each other every second, and elect another leader after four seconds of silence at the earliest."""
_SURE_S = 5.0
"""A server that leads so long after an answer led at the time of the answer."""
_ATTEMPT_S = 2.0
"""Longest wait for the next message of a page; a lost one is requested again."""
_SHORTEST_PAUSE_S = 0.001
_PAUSE_S = 0.05

_log = logging.getLogger(__name__)


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
        return await self._connection.api(f"STREAM.{what}.{self.name}", body)

    async def state(self, *, until: float | None = None) -> dict[str, Any]:
        """Return the state of the stream, as its leader knows it: first_seq, last_seq, messages, num_deleted.

        A leader that is cut off from the others stays leader for up to 20 s, and answers even then; if it still hears
        some of them, it learns within a second that there is another leader. One that was just elected may not know
        the last messages yet. So it is asked again until it has heard of a majority, and knows what this process does.

        Args:
            until: time of the loop when it gives up; None: after the connection's timeout.

        Raises:
            LogDamaged: messages that this process has read are lost.
            StoreUnavailable: there is no leader that has heard of a majority.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connection.timeout_s if until is None else until
        # Read first: this process may read and write meanwhile.
        known, place = self._known, self._connection.place
        while True:
            is_led, found = await self._answer_of_leader()
            if is_led and int(found["last_seq"]) >= known:
                return found
            if loop.time() > deadline:
                break
            await asyncio.sleep(_PAUSE_S)
        if not is_led:
            raise StoreUnavailable(
                f"{place}: the server that answers is cut off from the others that keep the log; try again"
            )
        # If it leads even after this time, it led when it answered.
        await asyncio.sleep(_SURE_S)
        is_led, found = await self._answer_of_leader()
        if is_led and int(found["last_seq"]) < known:
            raise LogDamaged(
                f"{place}: message {known} of the stream {self.name} is gone: the servers have lost events that they"
                " had acknowledged; stop all who write to it, and restore it from a copy"
            )
        raise StoreUnavailable(f"{place}: the server that leads the log does not know its last events; try again")

    async def _answer_of_leader(self) -> tuple[bool, dict[str, Any]]:
        info = await self.api("INFO")
        return is_led_by_most(info.get("cluster")), info["state"]

    async def prove_led(self) -> None:
        """Return once no server that was cut off can still lead the stream; messages unknown after that are lost."""
        await asyncio.sleep(_SURE_S)
        await self.state()

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
            headers: further ones, such as EXPECTED_LAST_SUBJECT_SEQUENCE: the sequence of the last message of the
                subject (0 = none), which it must replace.
            wait_s: longest wait for the answer; None = the connection's.

        Raises:
            ChangedMeanwhile: the stream, or the subject, ends elsewhere.
            StoreNotWritable, InvalidInput: the stream refuses it.
            StoreUnavailable: no answer: it may or may not be written.
        """
        self._connection.refuse_read_only()
        headers = {Header.EXPECTED_STREAM: self.name, **headers}
        if after is not None:
            headers[Header.EXPECTED_LAST_SEQUENCE] = str(after)
        sequence = int((await self._connection.request(subject, data, headers, wait_s=wait_s))["seq"])
        self._known = max(self._known, sequence)
        return sequence

    async def purge(self, what: Mapping[str, object]) -> None:
        """Delete messages: of a subject (`filter`), or all before a sequence (`seq`)."""
        self._connection.refuse_read_only()
        await self.api("PURGE", what)

    async def last_of(self, subject: str) -> StoredMessage | None:
        """Return the last message of a subject, as the leader knows it; None where there is none."""
        try:
            message = (await self.api("MSG.GET", {"last_by_subj": subject}))["message"]
        except NotFound:
            return None
        return StoredMessage(int(message["seq"]), b64decode(message.get("data", "")))

    async def page(self, sequence: int, *, messages: int, most_bytes: int, subject: str = "") -> list[StoredMessage]:
        """Return a page of messages from `sequence` on, of a subject or all, as far as the nearest server has them."""
        wanted: dict[str, Any] = {"seq": sequence, "batch": messages, "max_bytes": most_bytes}
        wanted |= {"next_by_subj": subject} if subject else {}
        client = await self._connection.client()
        queue: asyncio.Queue[Msg] = asyncio.Queue()
        async with translate_errors(self._connection.place):
            inbox = client.new_inbox()
            subscription = await client.subscribe(inbox, cb=queue.put, pending_msgs_limit=0, pending_bytes_limit=0)
            try:
                await client.publish(f"{API}DIRECT.GET.{self.name}", msgspec.json.encode(wanted), reply=inbox)
                return await self._batch(queue)
            finally:
                if not client.is_closed:
                    await subscription.unsubscribe()

    async def all_behind(self, sequence: int, *, messages: int, most_bytes: int) -> list[StoredMessage]:
        """Return a page of messages from `sequence` on; an empty one only if the stream's leader has no more.

        Raises:
            LogDamaged: messages that this process has read are lost.
            StoreUnavailable: there is no certain answer within the connection's timeout.
        """
        loop, pause_s = asyncio.get_running_loop(), _SHORTEST_PAUSE_S
        until = loop.time() + self._connection.timeout_s
        while True:
            try:
                if page := await self.page(sequence, messages=messages, most_bytes=most_bytes):
                    return page
            except StoreUnavailable as error:
                if loop.time() > until:
                    raise
                _log.debug("page asked for again stream=%s sequence=%d reason=%s", self.name, sequence, error)
            state = await self.state(until=until)
            if int(state["last_seq"]) < sequence or not state["messages"]:
                return []
            if loop.time() > until:
                raise StoreUnavailable(f"{self._connection.place}: no server has message {sequence} yet; try again")
            # The server that answered lags behind the leader.
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S)

    async def _batch(self, queue: "asyncio.Queue[Msg]") -> list[StoredMessage]:
        found: list[StoredMessage] = []
        try:
            while True:
                async with asyncio.timeout(_ATTEMPT_S):
                    message = await queue.get()
                headers = message.headers or {}
                status = headers.get(Header.STATUS, "")
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
