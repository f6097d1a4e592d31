"""Which connection gives way, and who may hold one more."""

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.api.admission import SHARED, CallerLimits, CallerShares, ConnectionTable
from voda.auth.callers import Caller
from voda.domain.errors import ServerBusy, TooManyRequests

LIMITS = CallerLimits(connections=6, connections_per_address=3, reserved=2, requests_per_user=2, streams_per_user=1)
NEAR, FAR = "192.0.2.1", "192.0.2.2"


def test_connection_when_an_address_has_too_many_then_its_longest_waiting_gives_way() -> None:
    table = ConnectionTable[int](LIMITS)
    assert [table.enter(number, NEAR) for number in range(3)] == [None] * 3
    assert table.enter(10, FAR) is None
    assert table.enter(3, NEAR) == 0
    table.leave(0)
    table.leave(0)
    assert len(table) == 4


def test_connections_of_this_machine_share_an_address_so_only_all_of_them_are_bounded() -> None:
    table = ConnectionTable[int](LIMITS)
    assert [table.enter(number, SHARED) for number in range(7)] == [*[None] * 6, 0]


def test_connection_when_held_does_not_give_way_and_an_address_holds_no_more_than_it_may() -> None:
    table = ConnectionTable[int](LIMITS)
    with ExitStack() as stack:
        for number in range(3):
            table.enter(number, NEAR)
            stack.enter_context(table.held(number, is_admin=False))
        assert table.enter(3, NEAR) is None
        with pytest.raises(ServerBusy, match="busy"), table.held(3, is_admin=False):
            pass
        with table.held(3, is_admin=True):
            pass
        assert table.enter(4, NEAR) == 3


@given(st.lists(st.tuples(st.sampled_from(["enter", "hold", "release", "leave"]), st.integers(0, 9), st.booleans())))
def test_table_when_anything_happens_is_bounded_and_an_admin_can_always_ask(
    steps: list[tuple[str, int, bool]],
) -> None:
    table, there, holds = ConnectionTable[int](LIMITS), list[int](), dict[int, ExitStack]()
    for number, (step, which, is_far) in enumerate(steps):
        one = there[which % len(there)] if there else None
        if step == "enter":
            there.append(number)
            if (leaving := table.enter(number, FAR if is_far else SHARED)) is not None:
                assert leaving not in holds
                table.leave(leaving)
                there.remove(leaving)
            assert number in there
        elif one is not None and step == "hold" and one not in holds:
            hold = ExitStack()
            try:
                hold.enter_context(table.held(one, is_admin=False))
                holds[one] = hold
            except ServerBusy:
                pass
        elif one is not None and step == "release" and one in holds:
            holds.pop(one).close()
        elif one is not None and step == "leave":
            table.leave(one)
            there.remove(one)
            if one in holds:
                holds.pop(one).close()
        assert len(table) == len(there) <= LIMITS.connections
        assert len(holds) <= LIMITS.connections - LIMITS.reserved


def test_connection_when_closed_before_its_request_is_known_holds_nothing() -> None:
    table = ConnectionTable[int](LIMITS)
    with pytest.raises(ConnectionResetError), table.held(1, is_admin=True):
        pass


def test_requests_of_a_user_and_of_the_users_jobs_are_counted_apart_and_an_admins_are_not_bounded() -> None:
    shares = CallerShares(LIMITS)
    ann, root = Caller(user="ann", role="user"), Caller(user="admin", role="admin")
    job = Caller(user="", role="job", job_id="j")
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(shares.request(ann, ""))
            stack.enter_context(shares.request(job, "ann"))
        for caller in (ann, job):
            with pytest.raises(TooManyRequests, match="as many as one user may"), shares.request(caller, "ann"):
                pass
        for _ in range(9):
            stack.enter_context(shares.request(root, ""))
    with shares.request(ann, ""):
        pass


def test_streams_of_an_admin_are_bounded_too() -> None:
    shares = CallerShares(LIMITS)
    root = Caller(user="admin", role="admin")
    with shares.stream(root), pytest.raises(TooManyRequests, match="follows 1 stream"), shares.stream(root):
        pass
