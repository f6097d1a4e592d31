"""The stand-ins' queues delay keys as those of the real operators do: by the exponential limiter of client-go."""

import asyncio
from contextlib import suppress
from itertools import pairwise

import pytest

from tests.kube.client import Key, Refused
from tests.kube.mirror import FIRST_DELAY_S, LONGEST_DELAY_S, Queue
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.kube.operators.pytorch import PyTorchOperator
from tests.virtual_time import now_s, virtually

KEY = ("ns", "digits")


async def looks(queue: Queue, *, events: int, failures: int) -> list[float]:
    """Return after how long a key is looked at about which there are so many events, and which then so often fails."""
    began, times = now_s(), list[float]()

    async def look(key: Key) -> None:
        times.append(now_s() - began)
        if len(times) <= failures:
            raise Refused(409, "Conflict", "the object has been modified")

    for _ in range(events):
        queue.see(KEY)
    with suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_DELAY_S * (failures + 1)):
            await queue.run(look, 1)
    return times


@pytest.mark.parametrize(("events", "delay_s"), [(1, 0.01), (10, 5.12), (16, 327.68), (30, 1_000.0)])
def test_mpi_operator_after_a_burst_of_events_and_one_conflict_stands_still(events: int, delay_s: float) -> None:
    queue = Queue(limits_events=MpiOperatorV2.limits_events)
    assert virtually(looks(queue, events=events, failures=1)) == pytest.approx([FIRST_DELAY_S, FIRST_DELAY_S + delay_s])


def test_training_operator_after_a_burst_of_events_and_one_conflict_goes_on_at_once() -> None:
    queue = Queue(limits_events=PyTorchOperator.limits_events)
    assert virtually(looks(queue, events=30, failures=1)) == pytest.approx([0.0, FIRST_DELAY_S])


def test_key_that_was_looked_at_with_success_is_delayed_anew() -> None:
    async def twice() -> list[list[float]]:
        queue = Queue(limits_events=True)
        return [await looks(queue, events=8, failures=0) for _ in range(2)]

    assert virtually(twice()) == [pytest.approx([FIRST_DELAY_S])] * 2


def test_key_that_fails_again_and_again_is_delayed_for_twice_as_long_each_time() -> None:
    times = virtually(looks(Queue(), events=1, failures=4))
    delays = [after - before for before, after in pairwise(times)]
    assert delays == pytest.approx([FIRST_DELAY_S * 2**number for number in range(4)])
