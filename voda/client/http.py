"""Requests to one server: sent once, repeated while the server is away, or followed as a stream that resumes.

Rule: only what may be sent twice is repeated, and never sooner than the server asks.
"""

import json
import math
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
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 3.0
_CHANGES: Final = 5
"""Attempts to change a resource that others change at the same time."""


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

    def __init__(self, where: NamedServer, *, timeout_s: float = ANSWER_S, retry_s: float = RETRY_S) -> None:
        self.cancellation = Cancellation()
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

    def ask_repeatedly(self, call: HttpCall, *, within_s: float = math.inf) -> HttpAnswer:
        """Return the answer to a request that may be sent twice, repeated while the server is away or busy."""
        return self.repeat(lambda: self.ask(call), within_s=within_s)

    def repeat(
        self,
        attempt: Callable[[], T],
        *,
        within_s: float = math.inf,
        lost: Callable[[str], None] = lambda _sentence: None,
    ) -> T:
        """Return the result of what may be done twice, repeated while the server is away or busy."""
        gives_up_at, failures = time.perf_counter() + min(self.retry_s, within_s), 0
        while True:
            try:
                return attempt()
            except TransientError as error:
                failures += 1
                pause_s = max(pause_after(error), delay_s(failures, first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S))
                if time.perf_counter() + pause_s > gives_up_at:
                    raise
                if failures == 1:
                    lost(f"{str(error).removesuffix('; try again')}; trying again for {self.retry_s:g} s")
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

    def follow_events(
        self,
        *,
        after: int,
        params: Params | None = None,
        away_s: float | None = None,
        lost: Callable[[str], None] = lambda _sentence: None,
    ) -> Iterator[SseMessage]:
        """Yield the events behind a position, for ever; a stream that is cut resumes behind the last one.

        `away_s` and `lost` are those of `resume`.
        """
        parser = SseParser(str(after))

        def connected() -> Iterator[list[SseMessage]]:
            nonlocal parser
            parser = SseParser(parser.last_id)
            headers = {"Accept": "text/event-stream", "Last-Event-ID": parser.last_id}
            query = {**(params or {}), "watch": "true", "after": parser.last_id}
            for piece in self.stream(HttpCall(path="/events", params=query, headers=headers), idle_s=_IDLE_S):
                yield parser.feed(piece)

        for messages in self.resume(connected, away_s=away_s, lost=lost):
            yield from messages

    def resume(
        self,
        connect: Callable[[], Iterator[T]],
        *,
        away_s: float | None = None,
        lost: Callable[[str], None] = lambda _sentence: None,
    ) -> Iterator[T]:
        """Yield what a stream yields, for ever: it is connected again after each loss and each end.

        `connect` has to go on where it was; `lost` is called with a sentence after a loss.

        Raises:
            TransientError: the server has been away for `away_s`, by default for `retry_s`.
        """
        away_s = self.retry_s if away_s is None else away_s
        lost_at, failures = math.inf, 0
        while True:
            error: TransientError | None = None
            try:
                for item in connect():
                    lost_at, failures = math.inf, 0
                    yield item
            except TransientError as found:
                error = found
            lost_at, failures = min(lost_at, time.perf_counter()), failures + 1
            pause_s = delay_s(failures, first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S)
            if error is not None:
                if time.perf_counter() + pause_s > lost_at + away_s:
                    raise error
                if failures == 1:
                    lost(str(error))
                pause_s = max(pause_s, pause_after(error))
            self.cancellation.pause(pause_s)


def pause_after(error: TransientError) -> float:
    """Return how long the server asks to be left alone."""
    return error.retry_after_s if isinstance(error, RetryLater) else 0.0


def resource_path(*parts: str) -> str:
    """Return the path of a resource; each part is one path segment, whatever characters it contains."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)
