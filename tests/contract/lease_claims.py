"""What every keeper of a Lease promises, said once; each brings a Bench.

Rule: two candidates have nothing in common but the server, as two processes.
"""

import asyncio
from typing import Protocol

import pytest

from tests.waiting import DEADLINE_S, until_it_is
from voda.domain.errors import ChangedMeanwhile
from voda.domain.lease import Lease, LeaseStore

DURATION_S = 2.0
RENEWED_S = 6.0
"""Of who renews it: a busy machine may keep it from that for some seconds."""


class Bench(Protocol):
    """A server where nobody ever led."""

    async def candidate(self) -> LeaseStore:
        """Return another candidate's way to the one Lease; closed by the bench."""
        ...


async def taken(keeper: LeaseStore, holder: str, transitions: int = 1, duration_s: float = DURATION_S) -> Lease:
    """Take it as it is."""
    return await keeper.take(await keeper.read(), holder=holder, transitions=transitions, duration_s=duration_s)


async def holder_of(keeper: LeaseStore) -> str:
    """Return who holds it, as another one sees it."""
    lease = await keeper.read()
    return lease.holder if lease is not None else ""


class LeaseClaims:
    """Of all keepers."""

    async def test_lease_when_nobody_led_yet_is_free(self, bench: Bench) -> None:
        assert await holder_of(await bench.candidate()) == ""

    async def test_lease_when_taken_by_two_is_of_one_and_others_see_whose(self, bench: Bench) -> None:
        first, second, third = [await bench.candidate() for _ in range(3)]
        seen = await first.read()
        takes = [
            keeper.take(seen, holder=me, transitions=1, duration_s=60.0) for keeper, me in ((first, "a"), (second, "b"))
        ]
        outcomes = await asyncio.gather(*takes, return_exceptions=True)
        assert sum(isinstance(outcome, ChangedMeanwhile) for outcome in outcomes) == 1, outcomes
        (lease,) = [outcome for outcome in outcomes if isinstance(outcome, Lease)]
        assert await holder_of(third) == lease.holder
        assert (lease.transitions, lease.duration_s) == (1, 60.0)

    async def test_lease_when_held_is_refused_to_who_saw_it_free(self, bench: Bench) -> None:
        first, second = await bench.candidate(), await bench.candidate()
        seen = await second.read()
        await taken(first, "a", duration_s=60.0)
        for _ in range(3):
            with pytest.raises(ChangedMeanwhile):
                await second.take(seen, holder="b", transitions=2, duration_s=60.0)
        assert await holder_of(second) == "a"

    @pytest.mark.slow
    async def test_lease_when_renewed_stays_its_holders_for_longer_than_it_promised(self, bench: Bench) -> None:
        first, second = await bench.candidate(), await bench.candidate()
        mine = await taken(first, "a", duration_s=RENEWED_S)
        loop = asyncio.get_running_loop()
        end = loop.time() + 1.5 * RENEWED_S
        while loop.time() < end:
            mine = await first.renew(mine)
            assert (mine.holder, mine.transitions) == ("a", 1)
            assert await holder_of(second) == "a"
            await asyncio.sleep(DURATION_S / 10)
        own = await first.read()
        assert own is not None
        assert (own.holder, own.transitions) == ("a", 1)

    async def test_lease_when_released_is_free_at_once_and_its_former_holder_can_do_nothing(self, bench: Bench) -> None:
        first, second = await bench.candidate(), await bench.candidate()
        mine = await taken(first, "a", duration_s=60.0)
        await first.release(mine)
        assert await holder_of(second) == ""
        theirs = await taken(second, "b", 2, duration_s=60.0)
        with pytest.raises(ChangedMeanwhile):
            await first.renew(mine)
        with pytest.raises(ChangedMeanwhile):
            await first.release(mine)
        assert await holder_of(first) == "b"
        assert (await second.renew(theirs)).holder == "b"

    async def test_watch_when_it_is_taken_and_released_tells(self, bench: Bench) -> None:
        first, second = await bench.candidate(), await bench.candidate()
        seen: list[str] = []

        async def watch() -> None:
            async for lease in second.watch():
                seen.append(lease.holder if lease is not None else "")

        async def is_told(holder: str) -> bool:
            return bool(seen) and seen[-1] == holder

        watching = asyncio.get_running_loop().create_task(watch())
        await until_it_is(lambda: is_told(""))
        mine = await taken(first, "a", duration_s=60.0)
        await until_it_is(lambda: is_told("a"))
        await first.release(mine)
        await until_it_is(lambda: is_told(""))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert (seen[0], seen[-1], set(seen)) == ("", "", {"", "a"})


class EnforcedLeaseClaims(LeaseClaims):
    """Of those that judge by themselves whether a holder is silent."""

    @pytest.mark.slow
    async def test_holder_when_silent_keeps_it_for_what_it_promised_and_no_longer(self, bench: Bench) -> None:
        first, second = await bench.candidate(), await bench.candidate()
        loop = asyncio.get_running_loop()
        began = loop.time()
        mine = await taken(first, "a")
        async with asyncio.timeout(DEADLINE_S):
            while await holder_of(second) == "a":  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)
        assert loop.time() - began >= DURATION_S
        theirs = await taken(second, "b", 2, duration_s=60.0)
        with pytest.raises(ChangedMeanwhile):
            await first.renew(mine)
        with pytest.raises(ChangedMeanwhile):
            await first.release(mine)
        assert (await second.renew(theirs)).holder == "b"
        assert await holder_of(first) == "b"
