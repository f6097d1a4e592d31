"""The fencing token: of several leaders of one pool, the newest alone acts."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.waiting import until
from voda.cluster.local.fence import Fence
from voda.cluster.local.token_file import FencingToken
from voda.domain.errors import Fenced
from voda.process_table import start_of


async def _leading(jobs: Path, token_id: str, *, epoch: int | None = 1, pool: str = "default") -> Fence:
    fence = Fence(jobs, pool)
    await fence.take(token_id, epoch)
    return fence


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which lives until the test ends it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def _write_token(jobs: Path, pid: int, *, epoch: int) -> None:
    token = FencingToken(id="other", epoch=epoch, pid=pid, start=start_of(pid) or 0)
    (jobs / ".leaders/default.json").write_bytes(msgspec.json.encode(token))


async def test_turn_when_another_leads_by_now_is_refused_and_so_are_all_later_ones(tmp_path: Path) -> None:
    old = await _leading(tmp_path, "old", epoch=1)
    old.check()
    new = await _leading(tmp_path, "new", epoch=2)
    for _ in range(2):
        with pytest.raises(Fenced, match="pool default: a newer leader in epoch 2 leads"), old.turn():
            pytest.fail("a turn was begun")
        new.check()
    # A refusal is final, even where the token comes back: what was left out meanwhile is not made up for.
    (tmp_path / ".leaders/default.json").write_bytes(b"")
    with pytest.raises(Fenced):
        old.check()


async def test_take_when_the_former_leader_stands_still_in_a_turn_waits_for_its_end(tmp_path: Path) -> None:
    old, new = await _leading(tmp_path, "old", epoch=1), Fence(tmp_path, "default")
    with old.turn(), old.turn():
        taking = asyncio.create_task(new.take("new", 2, wait_s=60))
        for _ in range(3):
            await asyncio.sleep(0)
        with pytest.raises(Fenced):
            new.check()
        assert not taking.done()
        with old.turn():
            old.expect_turn()
    await taking
    new.check()
    with pytest.raises(Fenced):
        old.check()


async def test_turn_when_a_newer_leader_has_the_lock_is_refused(tmp_path: Path) -> None:
    old, new = await _leading(tmp_path, "old"), await _leading(tmp_path, "new")
    with new.turn(), pytest.raises(Fenced, match="a newer leader in epoch 1"):
        old.check()


async def test_take_when_a_living_process_leads_in_a_later_epoch_is_fenced(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    await _leading(tmp_path, "mine", epoch=1)
    _write_token(tmp_path, other.pid, epoch=9)
    with pytest.raises(Fenced, match=f"process {other.pid} in epoch 9"):
        await _leading(tmp_path, "mine again", epoch=8)
    (await _leading(tmp_path, "later", epoch=10)).check()
    _write_token(tmp_path, other.pid, epoch=9)
    other.kill()
    other.wait()
    # A log that was restored from a backup counts from lower epochs again.
    await until(lambda: start_of(other.pid) is None)
    (await _leading(tmp_path, "restored", epoch=3)).check()


_ELSEWHERE = count(1)


def _put(jobs: Path, kind: str) -> None:
    """Put something in the place of the token, as a job of the same user can."""
    folder = jobs / ".leaders"
    token = folder / "default.json"
    if kind.startswith("folder "):
        folder.rename(jobs / f"elsewhere-{next(_ELSEWHERE)}")
    else:
        token.unlink()
    match kind:
        case "fifo":
            os.mkfifo(token)
        case "link":
            token.symlink_to("/dev/zero")
        case "folder":
            (token / "below").mkdir(parents=True)
        case "huge":
            token.touch()
            os.truncate(token, 1 << 40)
        case "folder fifo":
            os.mkfifo(folder)
        case "folder link":
            folder.symlink_to("/")
        case "folder file":
            folder.touch()
        case "folder without rights":
            folder.mkdir(mode=0)


_PUT = ["nothing", "fifo", "link", "folder", "huge"]
_PUT += [f"folder {kind}" for kind in ("gone", "fifo", "link", "file", "without rights")]


@pytest.mark.parametrize("kind", _PUT)
async def test_token_when_something_else_lies_in_its_place_is_written_again(kind: str, tmp_path: Path) -> None:
    leader = await _leading(tmp_path, "one", epoch=7)
    _put(tmp_path, kind)
    for _ in range(2):
        leader.check()
    newer = await _leading(tmp_path, "two", epoch=8)
    with pytest.raises(Fenced, match="a newer leader in epoch 8"):
        leader.check()
    newer.check()


@pytest.mark.parametrize("kind", _PUT)
async def test_take_when_something_else_lies_in_the_place_of_the_token_leads(kind: str, tmp_path: Path) -> None:
    await _leading(tmp_path, "one")
    _put(tmp_path, kind)
    leader = await _leading(tmp_path, "two")
    leader.check()
    assert (tmp_path / ".leaders").is_dir()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"id":"a"',
        b"[" * 1_024,
        b"\xff" * 2_048,
        b'{"id":1}',
        b'{"id":"a","epoch":9,"pid":99999999999,"start":1}',
    ],
)
async def test_token_when_it_cannot_be_read_is_written_again(content: bytes, tmp_path: Path) -> None:
    leader = await _leading(tmp_path, "one", epoch=7)
    (tmp_path / ".leaders/default.json").write_bytes(content)
    leader.check()
    (tmp_path / ".leaders/default.json").write_bytes(content)
    newer = await _leading(tmp_path, "two", epoch=8)
    newer.check()
    with pytest.raises(Fenced):
        leader.check()


async def test_token_of_an_older_leader_when_it_is_found_is_replaced(tmp_path: Path) -> None:
    leader = await _leading(tmp_path, "one", epoch=7)
    before = (tmp_path / ".leaders/default.json").read_bytes()
    _write_token(tmp_path, os.getppid(), epoch=6)
    leader.check()
    assert (tmp_path / ".leaders/default.json").read_bytes() == before


@pytest.fixture
def lock_holder(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """Start a process that keeps the lock of the token, and return its id."""
    with ExitStack() as stack:

        def hold() -> int:
            code = (
                "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
            )
            process = subprocess.Popen(
                [sys.executable, "-c", code, tmp_path / ".leaders/default.json"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"1\n"
            return process.pid

        yield hold


async def test_leader_beside_whom_none_can_lead_goes_on_whatever_a_job_writes(tmp_path: Path) -> None:
    leader = await _leading(tmp_path, "one", epoch=None)
    _write_token(tmp_path, os.getpid(), epoch=1_000)
    leader.check()
    shutil.rmtree(tmp_path / ".leaders")
    leader.check()
    leader.close()
    with pytest.raises(Fenced):
        leader.check()


async def test_turn_when_a_job_keeps_the_lock_begins_and_names_it_once(
    tmp_path: Path, lock_holder: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    leader = await _leading(tmp_path, "one", epoch=7)
    pid = lock_holder()
    for _ in range(3):
        leader.check()
    (warning,) = caplog.messages
    assert warning == f"pool=default process {pid} keeps the lock of its token; it goes on without it"


@pytest.mark.parametrize("epoch", [None, 8])
async def test_take_when_a_job_keeps_the_lock_takes_over_and_names_it(
    epoch: int | None, tmp_path: Path, lock_holder: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    old = await _leading(tmp_path, "one", epoch=7)
    pid = lock_holder()
    new = Fence(tmp_path, "default")
    await new.take("two", epoch, wait_s=0.05)
    new.check()
    assert caplog.messages == [f"pool=default process {pid} keeps the lock of its token; it is taken over"]
    with pytest.raises(Fenced):
        old.check()


async def test_leader_when_a_stale_candidate_has_the_lock_goes_on(
    tmp_path: Path, lock_holder: Callable[[], int], other: subprocess.Popen[bytes]
) -> None:
    leader = await _leading(tmp_path, "one", epoch=7)
    lock_holder()
    leader.check()
    # The candidate is refused, whoever has the lock.
    _write_token(tmp_path, other.pid, epoch=9)
    with pytest.raises(Fenced, match=f"process {other.pid} in epoch 9"):
        await Fence(tmp_path, "default").take("stale", 8, wait_s=0.0)


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "huge", "folder fifo", "folder link", "folder file"])
async def test_take_removes_what_was_moved_out_of_the_way_before(kind: str, tmp_path: Path) -> None:
    await _leading(tmp_path, "one", epoch=1)
    _put(tmp_path, kind)
    (tmp_path / ".leaders-7").mkdir()
    (tmp_path / ".leaders-7/default.json").write_bytes(b"{")
    (tmp_path / ".leaders-x").mkdir()
    for epoch in (2, 3):
        (await _leading(tmp_path, f"leader {epoch}", epoch=epoch)).check()
    assert {name for name in os.listdir(tmp_path) if name.startswith(".")} == {".leaders", ".leaders-x"}


async def test_take_keeps_a_folder_that_was_moved_while_another_process_with_a_token_in_it_lives(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    await _leading(tmp_path, "one", epoch=1)
    _write_token(tmp_path, other.pid, epoch=1)
    os.kill(other.pid, signal.SIGSTOP)
    (tmp_path / ".leaders").rename(tmp_path / ".leaders-1")
    (await _leading(tmp_path, "two", epoch=2)).check()
    assert (tmp_path / ".leaders-1/default.json").exists()
    other.kill()
    other.wait()
    await until(lambda: start_of(other.pid) is None)
    (await _leading(tmp_path, "three", epoch=3)).check()
    assert not (tmp_path / ".leaders-1").exists()


async def test_leader_that_stood_still_while_the_folder_of_its_token_was_removed_is_refused(tmp_path: Path) -> None:
    old = await _leading(tmp_path, "old", epoch=1)
    with old.turn():
        (tmp_path / ".leaders").rename(tmp_path / ".leaders-1")
        new = await _leading(tmp_path, "new", epoch=2)
        new.check()
        assert not (tmp_path / ".leaders-1").exists()
    with pytest.raises(Fenced, match="a newer leader in epoch 2"):
        old.check()
    new.check()


async def test_take_when_a_moved_folder_is_full_removes_a_part_at_a_time(tmp_path: Path) -> None:
    (tmp_path / ".leaders-1").mkdir()
    for number in range(1_500):
        (tmp_path / f".leaders-1/{number}").touch()
    await _leading(tmp_path, "one", epoch=1)
    assert 0 < len(os.listdir(tmp_path / ".leaders-1")) <= 500
    await _leading(tmp_path, "two", epoch=2)
    assert not (tmp_path / ".leaders-1").exists()


async def test_leaders_when_of_different_pools_do_not_meet(tmp_path: Path) -> None:
    fences = [await _leading(tmp_path, pool, pool=pool) for pool in ("h200", "cpu", "a/b", "..")]
    for fence in fences:
        with fence.turn():
            for each in fences:
                each.check()
    assert len(list((tmp_path / ".leaders").iterdir())) == len(fences)


async def test_changes_when_made_outside_of_a_turn_are_mistakes(tmp_path: Path) -> None:
    fence = await _leading(tmp_path, "one")
    with pytest.raises(RuntimeError, match="in turns alone"):
        fence.expect_turn()
    fence.close()
    with pytest.raises(Fenced, match="not led any more"):
        fence.check()


class Leaders(RuleBasedStateMachine):
    """Several leaderships over one folder, in any order: the last one that began acts, and no other ever again."""

    @initialize()
    def begin(self) -> None:
        self.place = TemporaryDirectory()
        self.fences = [Fence(Path(self.place.name), "default") for _ in range(3)]
        self.newest: int | None = None
        self.count = 0

    @rule(number=st.integers(0, 2))
    def lead(self, number: int) -> None:
        self.count += 1
        asyncio.run(self.fences[number].take(f"{self.count}", self.count))
        self.newest = number

    @rule(number=st.integers(0, 2))
    def act(self, number: int) -> None:
        try:
            self.fences[number].check()
        except Fenced:
            assert number != self.newest
        else:
            assert number == self.newest

    @rule(kind=st.sampled_from(_PUT))
    def disturb(self, kind: str) -> None:
        """What a job puts in the token's place is gone after the next turn of the newest leader."""
        if self.newest is not None and (Path(self.place.name) / ".leaders/default.json").is_file():
            _put(Path(self.place.name), kind)
            self.act(self.newest)

    @rule(number=st.integers(0, 2))
    def end(self, number: int) -> None:
        self.fences[number].close()
        self.newest = None if number == self.newest else self.newest

    def teardown(self) -> None:
        for fence in self.fences:
            fence.close()
        self.place.cleanup()


TestLeaders = Leaders.TestCase
