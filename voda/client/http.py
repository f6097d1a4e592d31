"""Requests to one server: sent once, repeated while the server is away, or followed as a stream that resumes.

Rule: only what may be sent twice is repeated, and never sooner than the server asks.
"""

import json
import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from typing import Final, TypeVar
from urllib.parse import quote

from voda.backoff import delay_s
from voda.client import connection
from voda.client.connection import Cancellation, HttpAnswer, HttpCall, Params
from voda.client.errors import RetryLater, ServerUnreachable
from voda.client.sse import SseMessage, SseParser
from voda.client.target import NamedServer, Target, target
from voda.domain.errors import TransientError, VersionConflict, VodaError

T = TypeVar("T")
ANSWER_S: Final = 30.0
RETRY_S: Final = 20.0
"""How long a request is repeated."""
_IDLE_S: Final = 60.0
"""A healthy server sends something more often than this on a stream of events."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 3.0
_ENDED_PAUSE_S: Final = 0.5
"""After a stream that the server has ended in order."""
_CHANGES: Final = 5
"""Attempts to change a resource that others change at the same time."""


class RetrySchedule:
    """When a request that failed is sent again: after growing pauses, and never sooner than the server asks."""

    def __init__(self, retry_s: float) -> None:
        self.failures = 0
        self._gives_up_at = time.perf_counter() + retry_s

    def pause_s(self, error: TransientError) -> float:
        """Return how long to wait after a failure; raises the error where the server would be away too long."""
        self.failures += 1
        asked_s = error.retry_after_s if isinstance(error, RetryLater) else 0.0
        pause_s = max(asked_s, delay_s(self.failures, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S))
        if time.perf_counter() + pause_s > self._gives_up_at:
            raise error
        return pause_s


class _Location:
    """Where the server is; found again after a loss, because a restarted voda may listen on another port."""

    def __init__(self, where: NamedServer) -> None:
        self.target: Target = target(where)
        self._where = where

    @contextmanager
    def renewed_after_loss(self) -> Iterator[Target]:
        try:
            yield self.target
        except ServerUnreachable:
            with suppress(VodaError):
                self.target = target(self._where)
            raise


class HttpClient:
    """Requests to the server that the user names."""

    def __init__(
        self,
        where: NamedServer,
        *,
        timeout_s: float = ANSWER_S,
        retry_s: float = RETRY_S,
        lost: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self.cancellation = Cancellation()
        self.lost = lost
        """Called with a sentence when the server is away: the request is repeated, or the stream resumed."""
        self._location = _Location(where)
        self._timeout_s = timeout_s
        self.retry_s = retry_s

    @property
    def target(self) -> Target:
        return self._location.target

    def with_cancellation(self, cancellation: Cancellation) -> "HttpClient":
        """Return the same client, ended by this cancellation."""
        other = copy(self)
        other.cancellation = cancellation
        return other

    def ask(self, call: HttpCall) -> HttpAnswer:
        """Return the answer to a request that is sent once."""
        with self._location.renewed_after_loss() as found:
            return connection.ask(found, call, self.cancellation, timeout_s=self._timeout_s)

    def get(self, path: str, params: Params | None = None) -> bytes:
        """Return the body of a resource, asked for once."""
        return self.ask(HttpCall(path=path, params=params)).body

    def ask_repeatedly(self, call: HttpCall, *, within_s: float = math.inf) -> HttpAnswer:
        """Return the answer to a request that may be sent twice, repeated while the server is away or busy."""
        return self.repeat(lambda: self.ask(call), within_s=within_s)

    def repeat(self, attempt: Callable[[], T], *, within_s: float = math.inf) -> T:
        """Return the result of what may be done twice, repeated while the server is away or busy."""
        schedule = RetrySchedule(min(self.retry_s, within_s))
        while True:
            try:
                return attempt()
            except TransientError as error:
                pause_s = schedule.pause_s(error)
                if schedule.failures == 1:
                    self.lost(trying_again(error))
            self.cancellation.pause(pause_s)

    def patch(self, path: str, change: Mapping[str, object]) -> tuple[HttpAnswer, HttpAnswer]:
        """Return the resource before and after a JSON merge patch of the version that was read before.

        Raises:
            VersionConflict: it changed each time between being read and being written.
        """
        body = json.dumps(change).encode()

        def attempt() -> tuple[HttpAnswer, HttpAnswer]:
            before = self.ask(HttpCall(path=path))
            headers = {"If-Match": before.etag, "Content-Type": "application/merge-patch+json"}
            return before, self.ask(HttpCall(method="PATCH", path=path, headers=headers, body=body))

        for _ in range(_CHANGES - 1):
            with suppress(VersionConflict):
                return self.repeat(attempt)
        return self.repeat(attempt)

    def stream(self, call: HttpCall, *, idle_s: float | None) -> Iterator[bytes]:
        """Yield an answer piece by piece; after `idle_s` of silence the connection counts as lost, None = never."""
        with self._location.renewed_after_loss() as found:
            yield from connection.stream(found, call, self.cancellation, idle_s=idle_s, timeout_s=self._timeout_s)

    @contextmanager
    def upgraded(self, call: HttpCall, *, protocol: str) -> Iterator[socket.socket]:
        """Keep a WebSocket open for the block; see `connection.upgraded`."""
        with (
            self._location.renewed_after_loss() as found,
            connection.upgraded(found, call, self.cancellation, protocol=protocol, timeout_s=self._timeout_s) as opened,
        ):
            yield opened

    def follow_events(
        self,
        *,
        after: int,
        params: Params | None = None,
        away_s: float | None = None,
    ) -> Iterator[SseMessage]:
        """Yield the events behind a position, for ever; a stream that is cut resumes behind the last one.

        `away_s` is that of `resume`.
        """
        parser = SseParser(str(after))

        def connected() -> Iterator[list[SseMessage]]:
            nonlocal parser
            parser = SseParser(parser.last_id)
            headers = {"Accept": "text/event-stream", "Last-Event-ID": parser.last_id}
            query = {**(params or {}), "watch": "true", "after": parser.last_id}
            for piece in self.stream(HttpCall(path="/events", params=query, headers=headers), idle_s=_IDLE_S):
                yield parser.feed(piece)

        for messages in self.resume(connected, away_s=away_s):
            yield from messages

    def resume(self, connect: Callable[[], Iterator[T]], *, away_s: float | None = None) -> Iterator[T]:
        """Yield what a stream yields, for ever: it is connected again after each loss and each end.

        `connect` has to go on where it was.

        Raises:
            TransientError: the server has been away for `away_s`, by default for `retry_s`.
        """
        schedule: RetrySchedule | None = None
        while True:
            pause_s = _ENDED_PAUSE_S
            try:
                for item in connect():
                    schedule = None
                    yield item
            except TransientError as error:
                schedule = schedule or RetrySchedule(self.retry_s if away_s is None else away_s)
                pause_s = schedule.pause_s(error)
                if schedule.failures == 1:
                    self.lost(str(error))
            self.cancellation.pause(pause_s)


def trying_again(error: TransientError) -> str:
    """Return what a user who waits is told."""
    return f"{str(error).removesuffix('; try again')}; trying again for {RETRY_S:g} s"


def resource_path(*parts: str) -> str:
    """Return the path of a resource; each part is one path segment, whatever characters it contains."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)
