"""Processes beside the service, as real ones: they end with it, and take no more than they may."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.waiting import until
from voda.app.side_process import SideProcess, memory_left, side_process

SPINNING = "tests.spinning_process"
SERVICE = """\
import asyncio, sys
from voda.app.side_process import side_process

async def serve():
    async with side_process(sys.argv[1]) as process:
        print((await process.receive()).decode(), flush=True)
        await asyncio.sleep(3600)

asyncio.run(serve())
"""


def has_ended(pid: int) -> bool:
    # Whoever adopts it may not have waited for it yet.
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())


async def test_process_when_the_service_is_killed_in_the_midst_of_its_work_ends_too() -> None:
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVICE, SPINNING), stdout=asyncio.subprocess.PIPE
    )
    assert service.stdout is not None
    async with asyncio.timeout(60):
        pid = int(await service.stdout.readline())
    assert not has_ended(pid)
    service.kill()
    assert await service.wait() == -signal.SIGKILL
    await until(lambda: has_ended(pid))


async def test_process_when_its_user_is_canceled_twice_has_ended_by_then() -> None:
    started: list[SideProcess] = []
    is_started = asyncio.Event()

    async def use() -> None:
        async with side_process(SPINNING) as process:
            started.append(process)
            is_started.set()
            await asyncio.sleep(3600)

    using = asyncio.create_task(use())
    await is_started.wait()
    using.cancel()
    await asyncio.sleep(0)
    using.cancel()
    with suppress(asyncio.CancelledError):
        await using
    assert started[0].process.returncode is not None


def bounds_of(pid: int) -> tuple[int, int]:
    """Return the most bytes of data, and how soon it is ended where memory runs short."""
    limits = Path(f"/proc/{pid}/limits").read_text("ascii").splitlines()
    most = next(line.split() for line in limits if line.startswith("Max data size"))
    return int(most[3]), int(Path(f"/proc/{pid}/oom_score_adj").read_text("ascii"))


async def test_process_when_it_has_begun_is_bounded_and_the_first_to_go() -> None:
    async with side_process(SPINNING) as process, asyncio.timeout(60):
        most_bytes, given_up = bounds_of(int(await process.receive()))
    assert 0 < most_bytes <= 1 << 30
    assert given_up == 500


def test_memory_left_when_a_container_has_a_limit_is_half_of_what_others_leave(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("2147483648\n")
    (tmp_path / "memory.stat").write_text("anon 1073741824\nfile 900000000\nshmem 0\n")
    assert memory_left(tmp_path) == 536870912


def test_memory_left_when_others_have_taken_all_of_it_is_none(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1073741824\n")
    (tmp_path / "memory.stat").write_text("anon 1073741824\nshmem 4096\n")
    assert memory_left(tmp_path) == 0


@pytest.mark.parametrize("limit", ["max\n", None])
def test_memory_left_when_there_is_no_limit_is_endless(tmp_path: Path, limit: str | None) -> None:
    (tmp_path / "memory.stat").write_text("anon 1\n")
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
    assert memory_left(tmp_path) == sys.maxsize
