"""A queue gives each key once, when it is due."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.backoff import Backoff
from voda.clock import SystemClock, VirtualClock
from voda.work_queue import DueKeys, WorkQueue

_ADDED = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 1.0, 2.0, 3.0])))


@given(_ADDED, st.sampled_from([0.0, 1.5, 9.0]))
def test_keys_are_taken_once_at_their_earliest_instant_those_due_longest_first(
    added: list[tuple[str, float]], now: float
) -> None:
    due, earliest = DueKeys[str](), dict[str, float]()
    for key, at in added:
        due.add(key, at)
        earliest[key] = min(at, earliest.get(key, math.inf))
    taken = []
    while (found := due.take(now)) is not None:
        taken.append(found)
    assert sorted(taken) == sorted(key for key, at in earliest.items() if at <= now)
    assert [earliest[key] for key in taken] == sorted(earliest[key] for key in taken)
    assert due.next_at() == min((at for at in earliest.values() if at > now), default=math.inf)
    assert len(due) == len(earliest) - len(taken)


def test_key_that_was_discarded_is_not_taken_until_it_is_added_again() -> None:
    due = DueKeys[str]()
    due.add("a", 1.0)
    due.discard("a")
    assert (due.take(9.0), due.next_at()) == (None, math.inf)
    due.add("a", 5.0)
    assert (due.due_at("a"), due.take(4.0), due.take(5.0)) == (5.0, None, "a")


async def test_key_that_failed_is_taken_after_its_delay_whoever_adds_it_meanwhile() -> None:
    clock = VirtualClock(100.0)
    queue = WorkQueue[str](clock, Backoff(first_s=10.0, longest_s=600.0))
    queue.add("a")
    assert await queue.take() == "a"
    assert (queue.failed("a"), len(queue)) == (1, 1)
    queue.add("a")
    queue.add("b")
    assert await queue.take() == "b"
    clock.move_to(110.0)
    assert await queue.take() == "a"
    assert queue.failed("a", at_least_s=100.0) == 2
    queue.forget("a")
    queue.add("a")
    assert await queue.take() == "a"


async def test_take_when_nothing_is_due_waits_for_what_is_added_or_becomes_due() -> None:
    queue = WorkQueue[str](SystemClock())
    taking = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add("late", after_s=1_000.0)
    queue.add("soon", after_s=0.01)
    assert await taking == "soon"
    taking = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add("now")
    assert (await taking, len(queue)) == ("now", 1)


async def test_keys_that_are_all_due_leave_others_their_turn() -> None:
    queue, turns = WorkQueue[int](SystemClock()), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    for key in range(10):
        queue.add(key)
    counting = asyncio.create_task(count())
    for _ in range(10):
        await queue.take()
    counting.cancel()
    assert turns >= 9


async def test_queue_without_backoff_takes_no_failures() -> None:
    with pytest.raises(AssertionError):
        WorkQueue[str](SystemClock()).failed("a")
