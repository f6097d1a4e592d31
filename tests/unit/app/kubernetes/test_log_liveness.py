"""How long a leader goes on without its log, on virtual time."""

import asyncio

import pytest

from tests.virtual_time import now_s, virtually
from voda.app.kubernetes.log_liveness import LogLiveness
from voda.domain.errors import StoreUnavailable
from voda.log.memory import MemoryStore

PATIENCE_S = 10.0


class Distant(MemoryStore):
    """A log that is away now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.away: list[tuple[float, float]] = []
        """(from, until), seconds since the test's beginning."""
        self.hangs = False
        self._began = now_s()

    async def position(self) -> int:
        at = now_s() - self._began
        if any(begin <= at < end for begin, end in self.away):
            if self.hangs:
                await asyncio.sleep(3_600.0)
            raise StoreUnavailable("the log is away")
        return await super().position()


async def given_up_after(reach: LogLiveness, *, within_s: float = 300.0) -> float | None:
    """Return after how many seconds the log was given up; None: it was not."""
    began = now_s()
    try:
        async with asyncio.timeout(within_s):
            await reach.lost()
    except TimeoutError:
        return None
    return now_s() - began


@pytest.mark.parametrize("hangs", [False, True])
def test_log_that_cannot_be_read_is_given_up_after_a_while(*, hangs: bool) -> None:
    async def story() -> float | None:
        store = Distant()
        store.away, store.hangs = [(20.0, 1_000.0)], hangs
        return await given_up_after(LogLiveness(store, tolerance_s=PATIENCE_S))

    after_s = virtually(story())
    assert after_s is not None
    assert 20.0 + PATIENCE_S <= after_s <= 20.0 + PATIENCE_S + 10.0


def test_log_that_is_away_for_moments_is_not_given_up() -> None:
    async def story() -> float | None:
        store = Distant()
        store.away = [(begin, begin + 7.0) for begin in range(0, 300, 15)]
        return await given_up_after(LogLiveness(store, tolerance_s=PATIENCE_S))

    assert virtually(story()) is None


def given_up_with(*appends: tuple[float, str]) -> float | None:
    """Return when a log is given up whose appends come to this, again and again: (seconds later, outcome)."""

    async def story() -> float | None:
        reach = LogLiveness(Distant(), tolerance_s=PATIENCE_S)

        async def write() -> None:
            while True:
                for pause_s, outcome in appends:
                    await asyncio.sleep(pause_s)
                    reach.appended(outcome)

        writing = asyncio.create_task(write())
        try:
            return await given_up_after(reach)
        finally:
            writing.cancel()

    return virtually(story())


@pytest.mark.parametrize("outcome", ["unavailable", "not_writable"])
def test_log_that_is_read_but_cannot_be_written_is_given_up(outcome: str) -> None:
    after_s = given_up_with((1.0, outcome))
    assert after_s is not None
    assert PATIENCE_S <= after_s <= PATIENCE_S + 5.0


def test_log_that_nobody_writes_after_one_failure_is_not_given_up() -> None:
    assert given_up_with((3.0, "unavailable"), (3_600.0, "ok")) is None


def test_log_whose_appends_hang_or_are_broken_off_is_given_up() -> None:
    after_s = given_up_with((PATIENCE_S + 2.0, "unavailable"), (0.0, "failed"))
    assert after_s is not None
    assert after_s <= 3 * PATIENCE_S


def test_appends_that_fail_now_and_then_do_not_add_up() -> None:
    appends = ((0.0, "unavailable"), (4.0, "ok"), (0.0, "unavailable"), (4.0, "conflict"))
    assert given_up_with(*appends) is None
