"""Decides what a candidate does next, from what it has observed of the Lease; pure.

Rules: a candidate takes a leader for dead only once the store of the Lease says so or, where the store does not judge,
once the Lease has not changed for as long as it promised, on the candidate's own clock and never by the instants in the
Lease; a leader stops well before others may take it for dead.
"""

import math
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.lease import Lease

_LONGEST_PROMISES: Final = 4.0
"""A duration of more than so many of our own was edited by hand, or is a mistake."""
_FARTHEST: Final = 1_000_000
"""Transitions farther ahead of the log were edited by hand: to follow them would use the numbers up."""


class ElectionTimeouts(Struct, frozen=True, kw_only=True):
    """The timeouts of an election, seconds."""

    duration_s: float = 15.0
    """After so long without a sign of life others take over."""
    renew_deadline_s: float = 10.0
    """After so long without a renewal the leader stops."""
    retry_s: float = 2.0
    """Between renewals, and between attempts."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_deadline_s < self.duration_s:
            raise ValueError(
                "expected 0 < retry_s < renew_deadline_s < duration_s, got"
                f" {self.retry_s:g}, {self.renew_deadline_s:g} and {self.duration_s:g}"
            )


LOG_TIMEOUTS: Final = ElectionTimeouts(duration_s=8.0, renew_deadline_s=5.0, retry_s=1.0)
"""For an election on the log's store: it is nearer than a cluster's API server, and judges silence itself."""


class ObservedLease(Struct, frozen=True, kw_only=True):
    """The Lease as this candidate observes it; instants are of its own steady clock."""

    lease: Lease | None = None
    """None: there is none."""
    since: float = -math.inf
    """When its present state was first seen."""
    heard_at: float = -math.inf
    """When the server last answered; -inf = never."""
    former: str = ""
    """Its last holder that was seen here."""
    reached: int = 0
    """Most transitions that were seen here."""


class Term(Struct, frozen=True, kw_only=True):
    """A leadership of this candidate."""

    epoch: int
    renewed_at: float
    """When the last successful renewal began, on the candidate's steady clock."""


class Candidacy(Struct, frozen=True, kw_only=True):
    """Everything that the next step depends on."""

    me: str
    observed: ObservedLease
    term: Term | None = None
    retry_at: float = -math.inf
    """The server failed to answer, and is not asked again before then."""
    is_in_doubt: bool = False
    """Whether a watch contradicts the last answer; watches may come late."""


class WaitUntil(Struct, frozen=True):
    """Nothing is due before this instant, unless the watch brings something."""

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


def observed_again(observed: ObservedLease, lease: Lease | None, now: float) -> ObservedLease:
    """Return the observation after an answer of the server."""
    if observed.heard_at > -math.inf and _signs_of_life(observed.lease) == _signs_of_life(lease):
        return replace(observed, lease=lease, heard_at=now)
    return ObservedLease(
        lease=lease,
        since=now,
        heard_at=now,
        former=lease.holder if lease else observed.former,
        reached=max(observed.reached, lease.transitions if lease else 0),
    )


def next_step(
    candidacy: Candidacy, now: float, terms: ElectionTimeouts
) -> WaitUntil | ReadLease | TakeLease | RenewLease | StepDown:
    """Return the step that is due now."""
    if candidacy.term is not None:
        return _as_leader(candidacy, candidacy.term, now, terms)
    return _as_candidate(candidacy, now, terms)


def next_epoch(observed: ObservedLease, highest: int) -> int:
    """Return the epoch to lead in: higher than any that the Lease or the log knows.

    Args:
        observed: of the Lease.
        highest: epoch in the log.
    """
    return max(known for known in (observed.reached, highest) if known <= highest + _FARTHEST) + 1


def _as_leader(
    candidacy: Candidacy, term: Term, now: float, terms: ElectionTimeouts
) -> WaitUntil | ReadLease | RenewLease | StepDown:
    ends_at = term.renewed_at + terms.renew_deadline_s
    if now >= ends_at:
        return StepDown(f"it could not be renewed for {terms.renew_deadline_s:g} s")
    if reason := loss_reason(candidacy.observed.lease, candidacy.me, term.epoch):
        return StepDown(reason)
    if now < candidacy.retry_at:
        return WaitUntil(min(candidacy.retry_at, ends_at))
    if candidacy.is_in_doubt:
        return ReadLease()
    due_at = term.renewed_at + terms.retry_s
    return RenewLease() if now >= due_at else WaitUntil(due_at)


def loss_reason(lease: Lease | None, me: str, epoch: int) -> str:
    """Return why the leader has lost the Lease; empty where it has not."""
    if lease is None:
        return "it was deleted"
    if lease.holder != me:
        return f"{lease.holder} holds it" if lease.holder else "its holder was removed"
    return "" if lease.transitions == epoch else f"its transitions were changed from {epoch} to {lease.transitions}"


def _as_candidate(candidacy: Candidacy, now: float, terms: ElectionTimeouts) -> WaitUntil | ReadLease | TakeLease:
    observed = candidacy.observed
    if now < candidacy.retry_at:
        return WaitUntil(candidacy.retry_at)
    # The leader renews every `retry_s`: after a longer silence the watch may hang.
    look_at = observed.heard_at + 2 * terms.retry_s
    if candidacy.is_in_doubt or observed.heard_at == -math.inf:
        return ReadLease()
    free_at = _free_at(observed, candidacy.me, terms)
    if now >= free_at:
        return TakeLease()
    return ReadLease() if now >= look_at else WaitUntil(min(free_at, look_at))


def _free_at(observed: ObservedLease, me: str, terms: ElectionTimeouts) -> float:
    """Return when the Lease may be taken."""
    # A leader whose Lease was deleted gets the time to find out.
    holder = observed.lease.holder if observed.lease else observed.former
    if holder in ("", me):
        return -math.inf
    if observed.lease is not None and observed.lease.is_enforced:
        return math.inf
    promised_s = observed.lease.duration_s if observed.lease else 0.0
    return observed.since + max(terms.duration_s, min(promised_s, _LONGEST_PROMISES * terms.duration_s))


def _signs_of_life(lease: Lease | None) -> Lease | None:
    """Return the Lease without its version, which anybody's edit of a label changes."""
    return lease and replace(lease, version="")
