"""A replica of the torture tells ends that it was made to take from those it took by itself."""

from pathlib import Path

import pytest

from tests.torture.replica import TRY_AGAIN, Replica
from tests.waiting import until


def a_replica(folder: Path, script: str) -> Replica:
    return Replica("r1", "http://127.0.0.1:9", ["/bin/sh", "-c", script], {}, folder / "said")


@pytest.mark.parametrize("status", [0, 1, 2])
async def test_replica_when_it_ends_by_itself_is_odd(tmp_path: Path, status: int) -> None:
    replica = a_replica(tmp_path, f"echo what a pity; exit {status}")
    replica.start()
    await until(lambda: not replica.is_running)
    assert not await replica.kill()
    assert replica.odd_ends == [f"r1 ended by itself with status {status}: what a pity"]


async def test_replica_when_it_asks_to_be_started_again_is_not_odd(tmp_path: Path) -> None:
    replica = a_replica(tmp_path, f"exit {TRY_AGAIN}")
    replica.start()
    await until(lambda: not replica.is_running)
    replica.note_end()
    assert (replica.odd_ends, replica.ends_to_try_again) == ([], 1)


async def test_replica_when_killed_while_it_stands_still_is_not_odd(tmp_path: Path) -> None:
    replica = a_replica(tmp_path, "exec sleep 60")
    replica.start()
    replica.stop()
    assert await replica.kill()
    assert (replica.is_running, replica.odd_ends) == (False, [])


async def test_replica_when_it_does_not_heed_sigterm_is_killed_and_odd(tmp_path: Path) -> None:
    replica = a_replica(tmp_path, 'trap "" TERM; echo ready; while :; do sleep 0.05; done')
    replica.start()
    await until(lambda: "ready" in (tmp_path / "said").read_text())
    await replica.end(0.2)
    assert (replica.is_running, replica.odd_ends) == (False, ["r1 did not end within 0.2 s of SIGTERM"])
