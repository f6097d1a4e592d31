"""The voda of the torture tells ends that it was made to take from those it took by itself."""

from pathlib import Path

import pytest

from tests.torture.process import TRY_AGAIN, Voda
from tests.waiting import until


def a_process(folder: Path, script: str) -> Voda:
    return Voda("http://127.0.0.1:9", ["/bin/sh", "-c", script], {}, folder / "said")


@pytest.mark.parametrize("status", [0, 1, 2])
async def test_voda_when_it_ends_by_itself_is_odd(tmp_path: Path, status: int) -> None:
    process = a_process(tmp_path, f"echo what a pity; exit {status}")
    process.start()
    await until(lambda: not process.is_running)
    assert not await process.kill()
    assert process.odd_ends == [f"it ended by itself with status {status}: what a pity"]


async def test_voda_when_it_asks_to_be_started_again_is_not_odd(tmp_path: Path) -> None:
    process = a_process(tmp_path, f"exit {TRY_AGAIN}")
    process.start()
    await until(lambda: not process.is_running)
    process.note_end()
    assert (process.odd_ends, process.ends_to_try_again) == ([], 1)


async def test_voda_when_killed_while_it_stands_still_is_not_odd(tmp_path: Path) -> None:
    process = a_process(tmp_path, "exec sleep 60")
    process.start()
    process.stop()
    assert await process.kill()
    assert (process.is_running, process.odd_ends) == (False, [])


async def test_voda_when_it_does_not_heed_sigterm_is_killed_and_odd(tmp_path: Path) -> None:
    process = a_process(tmp_path, 'trap "" TERM; echo ready; while :; do sleep 0.05; done')
    process.start()
    await until(lambda: "ready" in (tmp_path / "said").read_text())
    await process.end(0.2)
    assert (process.is_running, process.odd_ends) == (False, ["it did not end within 0.2 s of SIGTERM"])
