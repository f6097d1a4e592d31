"""What a candidate does next, from what it saw of the Lease: pure.

Rules: a leader is believed dead only once the keeper of the Lease says so or, where that does not judge, once the Lease
stood still for as long as it promised, on our own clock and never by the instants that it wrote; a leader stops well
before others may believe that of it.
"""

import math
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.lease import Lease

_LONGEST_PROMISES: Final = 4.0
"""A duration beyond this many of our own was edited by hand, or is a mistake."""
_FARTHEST: Final = 1_000_000
"""Transitions that are farther ahead of the log were edited by hand: following them would use the numbers up."""


class ElectionTimeouts(Struct, frozen=True, kw_only=True):
    """The spans of an election, seconds."""

    duration_s: float = 15.0
    """After that long without a sign of life others take over."""
    renew_deadline_s: float = 10.0
    """After that long without a renewal the leader stops."""
    retry_s: float = 2.0
    """Between renewals, and between attempts."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_deadline_s < self.duration_s:
            raise ValueError(
                "expected 0 < retry_s < renew_deadline_s < duration_s, got"
                f" {self.retry_s:g}, {self.renew_deadline_s:g} and {self.duration_s:g}"
            )


LOG_TIMEOUTS: Final = ElectionTimeouts(duration_s=8.0, renew_deadline_s=5.0, retry_s=1.0)
"""Where the log's own store elects: it is nearer than a cluster's API server, and judges silence itself."""


class ObservedLease(Struct, frozen=True, kw_only=True):
    """What is known of the Lease; instants are of our own steady clock."""

    lease: Lease | None = None
    """None: there is none."""
    since: float = -math.inf
    """When it was first seen as it is."""
    heard_at: float = -math.inf
    """When the server last said anything of it; -inf = never."""
    former: str = ""
    """Who held it last, as far as seen here."""
    reached: int = 0
    """Most transitions ever seen here."""


class Term(Struct, frozen=True, kw_only=True):
    """A leadership of our own."""

    epoch: int
    renewed_at: float
    """When the last renewal that succeeded was begun, on our own steady clock."""


class Candidacy(Struct, frozen=True, kw_only=True):
    """All that the next step depends on."""

    me: str
    sight: ObservedLease
    term: Term | None = None
    retry_at: float = -math.inf
    """Not to ask the server again before then, because it failed to answer."""
    is_in_doubt: bool = False
    """Whether a watch told something that does not go with what is known; watches may come late."""


class WaitUntil(Struct, frozen=True):
    """Nothing is due before this instant, unless something is heard."""

    until: float


class ReadLease(Struct, frozen=True):
    """Read the Lease."""


class TakeLease(Struct, frozen=True):
    """Try to become the leader."""


class RenewLease(Struct, frozen=True):
    """Show that the leader is alive."""


class StepDown(Struct, frozen=True):
    """Stop leading."""

    reason: str


def observed_again(sight: ObservedLease, lease: Lease | None, now: float) -> ObservedLease:
    """Return what is known once the server said that the Lease is as given."""
    if sight.heard_at > -math.inf and _signs(sight.lease) == _signs(lease):
        return replace(sight, lease=lease, heard_at=now)
    return ObservedLease(
        lease=lease,
        since=now,
        heard_at=now,
        former=lease.holder if lease else sight.former,
        reached=max(sight.reached, lease.transitions if lease else 0),
    )


def next_step(
    standing: Candidacy, now: float, terms: ElectionTimeouts
) -> WaitUntil | ReadLease | TakeLease | RenewLease | StepDown:
    """Return what is to be done now."""
    if standing.term is not None:
        return _as_leader(standing, standing.term, now, terms)
    return _as_candidate(standing, now, terms)


def next_epoch(sight: ObservedLease, highest: int) -> int:
    """Return the epoch to lead in: higher than any that the Lease or the log knows.

    Args:
        sight: of the Lease.
        highest: epoch in the log.
    """
    return max(known for known in (sight.reached, highest) if known <= highest + _FARTHEST) + 1


def _as_leader(
    standing: Candidacy, term: Term, now: float, terms: ElectionTimeouts
) -> WaitUntil | ReadLease | RenewLease | StepDown:
    ends_at = term.renewed_at + terms.renew_deadline_s
    if now >= ends_at:
        return StepDown(f"it could not be renewed for {terms.renew_deadline_s:g} s")
    if reason := loss_reason(standing.sight.lease, standing.me, term.epoch):
        return StepDown(reason)
    if now < standing.retry_at:
        return WaitUntil(min(standing.retry_at, ends_at))
    if standing.is_in_doubt:
        return ReadLease()
    due_at = term.renewed_at + terms.retry_s
    return RenewLease() if now >= due_at else WaitUntil(due_at)


def loss_reason(lease: Lease | None, me: str, epoch: int) -> str:
    """Return why the Lease is not the leader's any more; empty where it is."""
    if lease is None:
        return "it was deleted"
    if lease.holder != me:
        return f"{lease.holder} holds it" if lease.holder else "its holder was removed"
    return "" if lease.transitions == epoch else f"its transitions were changed from {epoch} to {lease.transitions}"


def _as_candidate(standing: Candidacy, now: float, terms: ElectionTimeouts) -> WaitUntil | ReadLease | TakeLease:
    sight = standing.sight
    if now < standing.retry_at:
        return WaitUntil(standing.retry_at)
    # The leader shows itself every `retry_s`: who has heard nothing for longer may have a watch that hangs.
    look_at = sight.heard_at + 2 * terms.retry_s
    if standing.is_in_doubt or sight.heard_at == -math.inf:
        return ReadLease()
    free_at = _free_at(sight, standing.me, terms)
    if now >= free_at:
        return TakeLease()
    return ReadLease() if now >= look_at else WaitUntil(min(free_at, look_at))


def _free_at(sight: ObservedLease, me: str, terms: ElectionTimeouts) -> float:
    """Return when the Lease may be taken."""
    # A leader whose Lease was deleted may not know yet: it is given the time to find out.
    holder = sight.lease.holder if sight.lease else sight.former
    if holder in ("", me):
        return -math.inf
    if sight.lease is not None and sight.lease.is_enforced:
        return math.inf
    promised_s = sight.lease.duration_s if sight.lease else 0.0
    return sight.since + max(terms.duration_s, min(promised_s, _LONGEST_PROMISES * terms.duration_s))


def _signs(lease: Lease | None) -> Lease | None:
    """Return the Lease without what changes though its holder may be dead: a label, set by whomever."""
    return lease and replace(lease, version="")
