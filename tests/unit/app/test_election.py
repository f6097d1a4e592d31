"""The rules of an election: who may take the Lease when, and when a leader stops."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.app.election import (
    Candidacy,
    ElectionTimeouts,
    ObservedLease,
    ReadLease,
    RenewLease,
    StepDown,
    TakeLease,
    Term,
    WaitUntil,
    next_epoch,
    next_step,
    observed_again,
)
from voda.domain.lease import Lease

TERMS = ElectionTimeouts()
NOW = 1_000.0


def a_lease(holder: str = "other", **fields: Any) -> Lease:
    known = {"transitions": 3, "duration_s": 15.0, "renewed_at": "then", "version": "7", **fields}
    return Lease(holder=holder, **known)


def a_candidate(lease: Lease | None, *, since: float = NOW, **fields: Any) -> Candidacy:
    return Candidacy(me="me", view=observed_again(ObservedLease(), lease, since), **fields)


def a_leader(lease: Lease | None = None, *, renewed_at: float = NOW, **fields: Any) -> Candidacy:
    lease = lease or a_lease("me")
    return a_candidate(lease, term=Term(epoch=3, renewed_at=renewed_at), **fields)


def test_candidate_when_nothing_is_known_looks() -> None:
    assert next_step(Candidacy(me="me", view=ObservedLease()), NOW, TERMS) == ReadLease()


def test_lease_when_there_was_none_ever_is_taken_at_once() -> None:
    assert next_step(a_candidate(None), NOW, TERMS) == TakeLease()


def test_lease_when_released_is_taken_at_once() -> None:
    assert next_step(a_candidate(a_lease("")), NOW, TERMS) == TakeLease()


def test_lease_when_held_by_another_is_taken_once_it_stood_still_for_its_duration() -> None:
    view = observed_again(observed_again(ObservedLease(), a_lease(), NOW), a_lease(), NOW + 14)
    state = Candidacy(me="me", view=view)
    assert next_step(state, NOW + 14.9, TERMS) == WaitUntil(NOW + 15)
    assert next_step(state, NOW + 15, TERMS) == TakeLease()


def test_lease_when_renewed_is_waited_for_from_then_on() -> None:
    view = observed_again(
        observed_again(ObservedLease(), a_lease(), NOW), a_lease(renewed_at="later", version="8"), NOW + 14
    )
    assert next_step(Candidacy(me="me", view=view), NOW + 16, TERMS) == WaitUntil(NOW + 18)


def test_lease_when_only_a_label_changed_stands_still() -> None:
    view = observed_again(observed_again(ObservedLease(), a_lease(), NOW), a_lease(version="8"), NOW + 14)
    assert next_step(Candidacy(me="me", view=view), NOW + 15, TERMS) == TakeLease()


@pytest.mark.parametrize("renewed_at", ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", "", "nonsense"])
def test_lease_when_the_holders_clock_is_wrong_is_judged_by_ours(renewed_at: str) -> None:
    state = a_candidate(a_lease(renewed_at=renewed_at))
    assert next_step(state, NOW + 1, TERMS) == WaitUntil(NOW + 4)
    assert next_step(state, NOW + 15, TERMS) == TakeLease()


@pytest.mark.parametrize(("promised_s", "waited_s"), [(0, 15), (1, 15), (30, 30), (1e9, 60)])
def test_duration_when_edited_by_hand_is_heeded_within_reason(promised_s: float, waited_s: float) -> None:
    state = a_candidate(a_lease(duration_s=promised_s))
    assert next_step(state, NOW + waited_s - 0.1, TERMS) != TakeLease()
    assert next_step(state, NOW + waited_s, TERMS) == TakeLease()


def test_lease_when_deleted_is_left_to_its_holder_for_a_duration() -> None:
    view = observed_again(observed_again(ObservedLease(), a_lease(), NOW - 1), None, NOW)
    assert next_step(Candidacy(me="me", view=view), NOW, TERMS) == WaitUntil(NOW + 4)
    assert next_step(Candidacy(me="me", view=view), NOW + 15, TERMS) == TakeLease()
    assert next_step(Candidacy(me="other", view=view), NOW, TERMS) == TakeLease()


def test_lease_when_held_by_us_though_we_do_not_lead_is_taken_anew() -> None:
    assert next_step(a_candidate(a_lease("me")), NOW, TERMS) == TakeLease()


def test_candidate_when_it_heard_nothing_for_two_renewals_looks() -> None:
    assert next_step(a_candidate(a_lease()), NOW + 4, TERMS) == ReadLease()


def test_candidate_when_the_server_failed_waits_before_it_asks_again() -> None:
    assert next_step(a_candidate(None, retry_at=NOW + 2), NOW, TERMS) == WaitUntil(NOW + 2)


def test_leader_renews_every_retry_period() -> None:
    assert next_step(a_leader(), NOW + 1, TERMS) == WaitUntil(NOW + 2)
    assert next_step(a_leader(), NOW + 2, TERMS) == RenewLease()


def test_leader_when_it_cannot_renew_stops_before_others_may_take_over() -> None:
    assert next_step(a_leader(retry_at=NOW + 60), NOW + 9, TERMS) == WaitUntil(NOW + 10)
    assert isinstance(next_step(a_leader(retry_at=NOW + 60), NOW + 10, TERMS), StepDown)


@pytest.mark.parametrize("lease", [a_lease("other"), a_lease(""), a_lease("me", transitions=4)])
def test_leader_when_the_lease_is_not_its_own_any_more_steps_down(lease: Lease) -> None:
    assert isinstance(next_step(a_leader(lease), NOW, TERMS), StepDown)


def test_leader_when_the_lease_was_deleted_steps_down() -> None:
    assert isinstance(next_step(a_candidate(None, term=Term(epoch=3, renewed_at=NOW)), NOW, TERMS), StepDown)


def test_leader_when_in_doubt_looks_before_it_believes() -> None:
    assert next_step(a_leader(is_in_doubt=True), NOW, TERMS) == ReadLease()


@given(st.floats(0, 60), st.floats(0, 60), st.floats(0, 5))
def test_nobody_takes_what_a_leader_still_holds(renewed_s: float, heard_s: float, now_s: float) -> None:
    """Whenever a candidate that heard of a renewal after it was begun takes over, the leader has stopped."""
    now = NOW + renewed_s + heard_s + now_s
    leader = a_leader(renewed_at=NOW + renewed_s)
    if next_step(a_candidate(a_lease(), since=NOW + renewed_s + heard_s), now, TERMS) == TakeLease():
        assert isinstance(next_step(leader, now, TERMS), StepDown)


def test_epoch_is_higher_than_any_that_lease_or_log_know() -> None:
    view = observed_again(ObservedLease(), a_lease(transitions=8), NOW)
    assert (next_epoch(view, 3), next_epoch(view, 11), next_epoch(ObservedLease(), 0)) == (9, 12, 1)


def test_epoch_when_the_lease_was_deleted_is_higher_than_those_seen_before() -> None:
    assert next_epoch(observed_again(observed_again(ObservedLease(), a_lease(transitions=8), NOW), None, NOW), 3) == 9


def test_epoch_when_transitions_were_edited_to_the_highest_number_follows_the_log() -> None:
    assert next_epoch(observed_again(ObservedLease(), a_lease(transitions=2**31 - 1), NOW), 3) == 4


def test_terms_that_let_two_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_deadline_s < duration_s"):
        ElectionTimeouts(renew_deadline_s=15.0)


def test_lease_when_its_keeper_judges_is_waited_for_until_that_frees_it() -> None:
    held = a_lease(is_enforced=True)
    assert next_step(a_candidate(held), NOW + 3, TERMS) == WaitUntil(NOW + 4)
    assert next_step(a_candidate(held), NOW + 1_000, TERMS) == ReadLease()
    freed = observed_again(observed_again(ObservedLease(), held, NOW), a_lease("", is_enforced=True), NOW + 1)
    assert next_step(Candidacy(me="me", view=freed), NOW + 1, TERMS) == TakeLease()
