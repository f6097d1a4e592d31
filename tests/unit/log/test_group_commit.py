"""Appends share commits: those that arrive while one group is being written are the next."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.builders import a_fact
from tests.waiting import DEADLINE_S
from voda.domain.errors import StoreNotWritable, StoreUnavailable
from voda.log.append_plan import Append, Outcome
from voda.log.group_commit import ALONE_AT_MOST, LARGEST_GROUP, GroupCommit


class SlowDisk:
    """A Committer that writes a group when it is let to, and remembers the sizes of all groups."""

    def __init__(self, *, is_quick: bool = False) -> None:
        self.groups: list[int] = []
        self.may_write = asyncio.Event()
        self.room = 10**9
        self._is_quick = is_quick

    async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        await self.may_write.wait()
        return self._written(group)

    def commit_at_once(self, group: Sequence[Append]) -> Sequence[Outcome] | None:
        return self._written(group) if self._is_quick else None

    def _written(self, group: Sequence[Append]) -> list[Outcome]:
        if sum(len(append.facts) for append in group) > self.room:
            raise StoreNotWritable("full")
        self.groups.append(len(group))
        return list(range(1, len(group) + 1))


def an_append(facts: int = 1) -> Append:
    return Append("job.a", -1, [a_fact(str(number)) for number in range(facts)], 0)


async def test_appends_that_arrive_during_a_commit_share_the_next() -> None:
    disk = SlowDisk()
    commits = GroupCommit(disk)
    appending = [asyncio.ensure_future(commits.append(an_append()))]
    for _ in range(5):
        await asyncio.sleep(0)
    appending += [asyncio.ensure_future(commits.append(an_append())) for _ in range(50)]
    await asyncio.sleep(0)
    assert not any(append.done() for append in appending)
    disk.may_write.set()
    assert await asyncio.gather(*appending) == [1, *range(1, 51)]
    assert disk.groups == [1, 50]


async def test_append_alone_does_not_wait_for_a_task() -> None:
    disk = SlowDisk(is_quick=True)
    assert [await GroupCommit(disk).append(an_append()) for _ in range(3)] == [1, 1, 1]
    assert disk.groups == [1, 1, 1]


async def test_appends_ready_at_the_same_time_share_a_commit_even_where_commits_are_quick() -> None:
    disk = SlowDisk(is_quick=True)
    disk.may_write.set()
    commits = GroupCommit(disk)
    answers = await asyncio.gather(*(commits.append(an_append()) for _ in range(7)))
    assert disk.groups == [7]
    assert answers == [1, 2, 3, 4, 5, 6, 7], "in the order in which they arrived, the first one included"


async def test_appends_in_a_tight_loop_leave_others_their_turn() -> None:
    disk = SlowDisk(is_quick=True)
    disk.may_write.set()
    commits = GroupCommit(disk)
    stood_at: list[int] = []

    async def other() -> None:
        stood_at.append(len(disk.groups))
        await commits.append(an_append())

    waiting = asyncio.ensure_future(other())
    for _ in range(10 * ALONE_AT_MOST):
        await commits.append(an_append())
    assert stood_at[0] <= ALONE_AT_MOST
    assert waiting.done()


async def test_group_takes_no_more_once_it_is_large() -> None:
    disk = SlowDisk()
    disk.may_write.set()
    commits = GroupCommit(disk)
    await asyncio.gather(*(commits.append(an_append(LARGEST_GROUP // 2)) for _ in range(3)))
    assert disk.groups == [2, 1]


async def test_append_too_large_for_the_disk_leaves_room_to_its_neighbours() -> None:
    disk = SlowDisk()
    disk.may_write.set()
    disk.room = 5
    commits = GroupCommit(disk)
    appends = [commits.append(an_append(facts)) for facts in (1, 9, 1)]
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [int, StoreNotWritable, int]


async def test_error_of_a_group_reaches_each_of_its_callers_as_its_own() -> None:
    class Away(SlowDisk):
        async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
            raise StoreUnavailable("away")

    commits = GroupCommit(Away())
    outcomes = await asyncio.gather(*(commits.append(an_append()) for _ in range(3)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["away"] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
    async with asyncio.timeout(DEADLINE_S):
        assert await _closed(commits)


async def test_append_cancelled_while_it_waits_is_not_written() -> None:
    disk = SlowDisk()
    commits = GroupCommit(disk)
    first = asyncio.ensure_future(commits.append(an_append()))
    for _ in range(5):
        await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(commits.append(an_append())) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    disk.may_write.set()
    assert (await first, await waiting[1]) == (1, 1)
    assert disk.groups == [1, 1]
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]


async def _closed(commits: GroupCommit) -> bool:
    await commits.close()
    return True
