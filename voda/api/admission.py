"""Bounds what callers hold at a time: connections in all and of one address, requests and streams of one user.

Rules: only the request of a known caller holds its connection; every other connection gives way to a new one, the
longest waiting first. The last connections are for admins alone.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from aiohttp import web

from voda.auth.callers import Caller
from voda.domain.errors import ServerBusy, TooManyRequests
from voda.manifests.text import MOST_BYTES

C = TypeVar("C")
SHARED: Final = ""
"""Peer of callers that an address does not tell apart: those of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """How much one caller may ask for."""

    body_bytes: int = MOST_BYTES
    request_s: float = 30.0
    """Longest time for a request to arrive in full, and for the caller to take an answer that is not a stream."""
    connections: int = 500
    """Of all callers at a time: each costs a file, a process often may open 1,024, and jobs need some too."""
    connections_per_address: int = 250
    """Of them from one address; addresses of this machine are exempt, as all its users share them."""
    reserved: int = 50
    """Of them for requests of admins alone."""
    requests_per_user: int = 100
    """Under way at a time, those of the user's jobs counted apart; admins may have more."""
    streams_per_user: int = 50
    """Events and logs that are followed at a time, and commands that run beside replicas; also of an admin."""
    command_idle_s: float = 14_400.0
    """After so long without input or output, a command beside a replica is ended."""
    command_s: float = 86_400.0
    """Longest time that a command beside a replica may take."""
    idle_s: float = 60.0
    """An idle connection is closed after this."""
    heartbeat_s: float = 15.0
    """An idle stream sends a sign of life this often, so that both sides notice when the other is gone."""


class ConnectionTable(Generic[C]):
    """The connections that there are, by peer: those that a request of a known caller holds, and those that wait."""

    def __init__(self, limits: CallerLimits) -> None:
        self.limits = limits
        self._peers: dict[C, str] = {}
        self._waiting: dict[C, None] = {}
        """No request of a known caller is under way there; the longest waiting first."""
        self._of_peer: Counter[str] = Counter()
        self._held_by_peer: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._peers)

    def enter(self, newcomer: C, peer: str) -> C | None:
        """Count a connection in, and return the one that has to be closed for it; itself where all others are held."""
        self._peers[newcomer] = peer
        self._waiting[newcomer] = None
        self._of_peer[peer] += 1
        if peer != SHARED and self._of_peer[peer] > self.limits.connections_per_address:
            leaving = self._longest_waiting(peer)
            if leaving != newcomer:
                return leaving
        return self._longest_waiting() if len(self._peers) > self.limits.connections else None

    def leave(self, one: C) -> None:
        """Count a connection out; nothing where it was already."""
        if (peer := self._peers.pop(one, None)) is None:
            return
        if one in self._waiting:
            del self._waiting[one]
        else:
            _take(self._held_by_peer, peer)
        _take(self._of_peer, peer)

    @contextmanager
    def held(self, one: C, *, is_admin: bool) -> Iterator[None]:
        """Hold a connection for the length of the block; raises ServerBusy where only admins may hold one more."""
        if (peer := self._peers.get(one)) is None:
            raise ConnectionResetError("the connection was closed")
        if not is_admin:
            self._refuse_if_crowded(peer)
        del self._waiting[one]
        self._held_by_peer[peer] += 1
        try:
            yield
        finally:
            if one in self._peers:
                _take(self._held_by_peer, peer)
                self._waiting[one] = None

    def _refuse_if_crowded(self, peer: str) -> None:
        limits, held = self.limits, len(self._peers) - len(self._waiting)
        of_peer = limits.connections_per_address if peer != SHARED else limits.connections
        if held >= limits.connections - limits.reserved or self._held_by_peer[peer] >= of_peer:
            raise ServerBusy(
                "this server is busy with as many requests as it takes from all callers: try again in a moment"
            )

    def _longest_waiting(self, peer: str | None = None) -> C:
        # The newcomer waits too.
        return next(one for one in self._waiting if peer is None or self._peers[one] == peer)


class CallerShares:
    """What each user has under way; an admin has as many requests as there are connections, but not streams."""

    def __init__(self, limits: CallerLimits) -> None:
        self._limits = limits
        self._requests: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    @contextmanager
    def request(self, caller: Caller, owner: str) -> Iterator[None]:
        """Count a request for the length of the block; raises TooManyRequests where the user has too many.

        A job asks for its `owner`, whose jobs share one bound.
        """
        whose, limit = _share(caller, owner), self._limits.requests_per_user
        if caller.role not in ("admin", "scheduler") and self._requests[whose] >= limit:
            raise TooManyRequests(
                f"{limit} requests of {whose} are under way, as many as one user may have: try again in a moment"
            )
        with _counted(self._requests, whose):
            yield

    @contextmanager
    def stream(self, caller: Caller) -> Iterator[None]:
        """Count a stream for the length of the block; raises TooManyRequests where the user has too many."""
        limit = self._limits.streams_per_user
        if self._streams[caller.user] >= limit:
            raise TooManyRequests(
                f"user {caller.user} follows {limit} streams (events, logs, commands), as many as one user may: end"
                " one of them"
            )
        with _counted(self._streams, caller.user):
            yield


def _share(caller: Caller, owner: str) -> str:
    return f"the jobs of {owner}" if caller.role == "job" else f"user {caller.user}"


@contextmanager
def _counted(counts: Counter[str], name: str) -> Iterator[None]:
    counts[name] += 1
    try:
        yield
    finally:
        _take(counts, name)


def _take(counts: Counter[str], name: str) -> None:
    """Take one away, and forget the name with its last one: names are as many as callers make."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


SHARES: Final = web.AppKey("SHARES", CallerShares)
CALLER: Final = web.RequestKey("CALLER", Caller)
"""Of a request, once it is known."""
