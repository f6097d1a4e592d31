"""What a candidate does next, by what it saw of the Lease: pure.

Rules: a candidate takes a leader for dead only once the keeper of the Lease says so or, where the keeper does not
judge, once the Lease has not changed for as long as it promised, by the candidate's own clock and never by the instants
in the Lease; a leader stops well before others may take it for dead.
"""

import math
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.lease import Lease

_LONGEST_PROMISES: Final = 4.0
"""A duration of more than this many of our own was edited by hand, or is a mistake."""
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
"""For an election on the log's own store: it is nearer than an API server, and judges silence itself."""


class ObservedLease(Struct, frozen=True, kw_only=True):
    """What is known of the Lease; instants are of our own steady clock."""

    lease: Lease | None = None
    """None: there is none."""
    since: float = -math.inf
    """When it was first seen as it is."""
    seen_at: float = -math.inf
    """When the server last answered or showed it; -inf = never."""
    former: str = ""
    """Its last holder, as far as seen here."""
    reached: int = 0
    """Most transitions ever seen here."""


class Term(Struct, frozen=True, kw_only=True):
    epoch: int
    renewed_at: float
    """When the last renewal that succeeded was begun, on our own steady clock."""


class Candidacy(Struct, frozen=True, kw_only=True):
    me: str
    view: ObservedLease
    term: Term | None = None
    retry_at: float = -math.inf
    """No call to the server before then, because the last one failed."""
    is_in_doubt: bool = False
    """Whether a watch or a conflict contradicts the view; watches may be late."""


class WaitUntil(Struct, frozen=True):
    """Nothing is due before this instant, unless the Lease changes."""

    until: float


class ReadLease(Struct, frozen=True):
    """Read the Lease."""


class TakeLease(Struct, frozen=True):
    """Try to become the leader."""


class RenewLease(Struct, frozen=True):
    """Renew the Lease."""


class StepDown(Struct, frozen=True):
    """Stop leading."""

    reason: str


def observed_again(view: ObservedLease, lease: Lease | None, now: float) -> ObservedLease:
    """Return what is known once the server has shown the Lease as given."""
    if view.seen_at > -math.inf and _heartbeat(view.lease) == _heartbeat(lease):
        return replace(view, lease=lease, seen_at=now)
    return ObservedLease(
        lease=lease,
        since=now,
        seen_at=now,
        former=lease.holder if lease else view.former,
        reached=max(view.reached, lease.transitions if lease else 0),
    )


def next_step(
    state: Candidacy, now: float, timings: ElectionTimeouts
) -> WaitUntil | ReadLease | TakeLease | RenewLease | StepDown:
    """Return what to do now."""
    if state.term is not None:
        return _as_leader(state, state.term, now, timings)
    return _as_candidate(state, now, timings)


def next_epoch(view: ObservedLease, highest: int) -> int:
    """Return the epoch to lead in: higher than any that the Lease or, with `highest`, the log knows."""
    return max(known for known in (view.reached, highest) if known <= highest + _FARTHEST) + 1


def _as_leader(
    state: Candidacy, term: Term, now: float, timings: ElectionTimeouts
) -> WaitUntil | ReadLease | RenewLease | StepDown:
    ends_at = term.renewed_at + timings.renew_deadline_s
    if now >= ends_at:
        return StepDown(f"it could not be renewed for {timings.renew_deadline_s:g} s")
    if reason := loss_reason(state.view.lease, state.me, term.epoch):
        return StepDown(reason)
    if now < state.retry_at:
        return WaitUntil(min(state.retry_at, ends_at))
    if state.is_in_doubt:
        return ReadLease()
    due_at = term.renewed_at + timings.retry_s
    return RenewLease() if now >= due_at else WaitUntil(due_at)


def loss_reason(lease: Lease | None, me: str, epoch: int) -> str:
    """Return why the Lease is not the leader's any more; empty where it is."""
    if lease is None:
        return "it was deleted"
    if lease.holder != me:
        return f"{lease.holder} holds it" if lease.holder else "its holder was removed"
    return "" if lease.transitions == epoch else f"its transitions were changed from {epoch} to {lease.transitions}"


def _as_candidate(state: Candidacy, now: float, timings: ElectionTimeouts) -> WaitUntil | ReadLease | TakeLease:
    view = state.view
    if now < state.retry_at:
        return WaitUntil(state.retry_at)
    # The leader renews every `retry_s`: a candidate that saw nothing for longer may have a watch that hangs.
    look_at = view.seen_at + 2 * timings.retry_s
    if state.is_in_doubt or view.seen_at == -math.inf:
        return ReadLease()
    free_at = _free_at(view, state.me, timings)
    if now >= free_at:
        return TakeLease()
    return ReadLease() if now >= look_at else WaitUntil(min(free_at, look_at))


def _free_at(view: ObservedLease, me: str, timings: ElectionTimeouts) -> float:
    """Return when the Lease may be taken."""
    # A leader whose Lease was deleted may not know yet: it gets the time to find out.
    holder = view.lease.holder if view.lease else view.former
    if holder in ("", me):
        return -math.inf
    if view.lease is not None and view.lease.is_enforced:
        return math.inf
    promised_s = view.lease.duration_s if view.lease else 0.0
    return view.since + max(timings.duration_s, min(promised_s, _LONGEST_PROMISES * timings.duration_s))


def _heartbeat(lease: Lease | None) -> Lease | None:
    """Return the Lease without what others change while its holder may be dead, such as a label."""
    return lease and replace(lease, version="")
