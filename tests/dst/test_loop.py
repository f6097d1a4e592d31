"""The loop of the simulated world: virtual time, drawn order, and owners that are killed or frozen."""

import asyncio
import contextvars

import pytest

from tests.dst.loop import Owner, SeededLoop, run, within
from voda.domain.rng import rng_at


def order_of(seed: int) -> list[int]:
    """Return the order in which ten tasks that are ready at once run."""
    loop = SeededLoop(rng_at(seed))
    ran: list[int] = []

    async def note(number: int) -> None:
        ran.append(number)

    async def work() -> None:
        await asyncio.gather(*(note(number) for number in range(10)))

    run(loop, work())
    loop.close()
    return ran


def test_ready_tasks_run_in_the_order_that_the_seed_draws() -> None:
    orders = [order_of(seed) for seed in range(5)]
    assert orders == [order_of(seed) for seed in range(5)]
    assert len({tuple(order) for order in orders}) == 5
    assert all(sorted(order) == list(range(10)) for order in orders)


def test_time_jumps_to_the_next_timer() -> None:
    loop = SeededLoop(rng_at(0))

    async def work() -> float:
        began = loop.time()
        await asyncio.sleep(86_400.0)
        return loop.time() - began

    assert run(loop, work()) == pytest.approx(86_400.0, abs=0.001)
    loop.close()


def test_tasks_that_all_wait_for_each_other_are_told_of() -> None:
    loop = SeededLoop(rng_at(0))
    with pytest.raises(RuntimeError, match="no timer is set"):
        run(loop, asyncio.Event().wait())
    loop.bury()
    loop.close()


def test_call_in_a_thread_runs_here_and_answers_later() -> None:
    loop = SeededLoop(rng_at(0))

    async def work() -> int:
        return await asyncio.to_thread(lambda: 7)

    async def fails() -> None:
        await asyncio.to_thread(lambda: int("x"))

    assert run(loop, work()) == 7
    with pytest.raises(ValueError, match="invalid literal"):
        run(loop, fails())
    loop.close()


class Life:
    """Something with an end, which it writes down."""

    def __init__(self, loop: SeededLoop) -> None:
        self.owner = Owner("life")
        self.said: list[str] = []
        self._loop = loop
        self.task = within(self.owner).run(loop.create_task, self._live())

    async def _live(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tick())
                await asyncio.sleep(100.0)
        finally:
            self.said.append("cleaned up")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.said.append(f"{self._loop.time() - 1_000.0:.0f}")


def test_life_when_killed_does_nothing_any_more_not_even_clean_up() -> None:
    loop = SeededLoop(rng_at(0))

    async def work() -> list[str]:
        life = Life(loop)
        await asyncio.sleep(3.5)
        loop.kill(life.owner)
        await asyncio.sleep(1_000.0)
        assert not life.task.done()
        return list(life.said)

    assert run(loop, work()) == ["1", "2", "3"]
    loop.bury()
    loop.close()


def test_life_when_frozen_goes_on_from_where_it_was() -> None:
    loop = SeededLoop(rng_at(0))

    async def work() -> list[str]:
        life = Life(loop)
        await asyncio.sleep(2.5)
        loop.freeze(life.owner)
        await asyncio.sleep(50.0)
        assert life.said == ["1", "2"]
        loop.thaw(life.owner)
        await asyncio.sleep(2.0)
        return list(life.said)

    # What was due meanwhile is done at once, and no more often than it was due.
    assert run(loop, work()) == ["1", "2", "53", "54"]
    loop.bury()
    loop.close()


def test_life_when_its_fuse_has_burnt_is_struck_between_two_steps() -> None:
    loop = SeededLoop(rng_at(0))

    async def work() -> list[str]:
        life = Life(loop)
        await asyncio.sleep(2.5)
        life.owner.fuse, life.owner.blown = 2, lambda: loop.kill(life.owner)
        await asyncio.sleep(50.0)
        return list(life.said)

    said = run(loop, work())
    assert said == ["1", "2", "3"]
    loop.bury()
    loop.close()


def test_burial_ends_who_begins_meanwhile_too() -> None:
    loop, lives = SeededLoop(rng_at(0)), list[Life]()

    def begin() -> None:
        lives.append(Life(loop))
        lives[-1].owner.is_frozen = True

    async def work() -> None:
        begin()
        lives[0].task.add_done_callback(lambda _: begin())

    run(loop, work())
    loop.bury()
    assert [life.task.cancelled() for life in lives] == [True, True]
    loop.close()


def test_sets_of_tasks_have_one_order_everywhere() -> None:
    loop = SeededLoop(rng_at(0))

    async def work() -> list[int]:
        tasks = {loop.create_task(asyncio.sleep(1.0)) for _ in range(20)}
        return [task.number for task in tasks]

    numbers = run(loop, work())
    assert numbers == sorted(numbers)
    loop.bury()
    loop.close()


def test_task_that_never_waits_is_told_of() -> None:
    loop, told = SeededLoop(rng_at(0)), list[int]()
    loop.circled = lambda: told.append(loop.steps)

    async def work() -> None:
        for _ in range(100_000):
            await asyncio.sleep(0)

    run(loop, work())
    assert told[0] <= 20_001
    loop.close()


def test_context_of_nobody_outlives_the_owner() -> None:
    loop = SeededLoop(rng_at(0))

    async def work() -> list[str]:
        owner, told = Owner("life"), list[str]()

        def send() -> None:
            loop.call_later(1.0, told.append, "arrived", context=contextvars.Context())
            loop.call_later(1.0, told.append, "heard")

        within(owner).run(send)
        loop.kill(owner)
        await asyncio.sleep(2.0)
        return told

    assert run(loop, work()) == ["arrived"]
    loop.close()
