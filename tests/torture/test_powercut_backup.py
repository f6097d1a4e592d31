"""A backup that said it was complete is there after a power cut, also what an earlier run left to the kernel."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.builders import a_fact
from tests.torture.powercut_disk import Disk, Loss, write_out
from tests.torture.powercut_record import built_shim, environment, operations
from tests.torture.test_powercut import compiler as compiler
from voda.domain.rng import rng_at
from voda.events.envelope import ANY_VERSION
from voda.log.archive.archive import Archive, verify_archive
from voda.log.archive.verify import HashChain
from voda.log.factory import open_store

_ROOT = Path(__file__).parents[2]
_WAIT_S = 120
_EVENTS = 30
_KILLED = 9
_BACKS_UP = """
import asyncio, os, sys
from pathlib import Path
from voda import files
from voda.log.archive import archive
from voda.log.archive.copy import copy_to_folder
from voda.log.factory import open_log

if sys.argv[3] == "killed":
    # Once a segment is there, and before it is on the disk: all that was written is still with the kernel.
    os.fsync = lambda _: None
    files.sync = archive.sync = lambda _: os._exit(9) if list(Path(sys.argv[2]).glob("voda-*")) else None

async def run():
    log = await open_log(sys.argv[1])
    await copy_to_folder(log, Path(sys.argv[2]), until=int(sys.argv[4]))
    await log.close()

asyncio.run(run())
"""


def backed_up(folder: Path, *runs: tuple[str, int, int]) -> Disk:
    """Back up a log in runs of their own, (how it ends, up to which position, exit status); return the disk."""
    disk, journal, shim = folder / "disk", folder / "journal", built_shim(folder)
    disk.mkdir()
    asyncio.run(_written(folder / "log.db"))
    for how, until, status in runs:
        done = subprocess.run(
            [sys.executable, "-c", _BACKS_UP, str(folder / "log.db"), str(disk / "backup"), how, str(until)],
            env={**os.environ, **environment(shim, disk, journal)},  # noqa: TID251 - handed on whole
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=_WAIT_S,
            check=False,
        )
        assert done.returncode == status, done.stderr
    model = Disk(str(disk.resolve()))
    for operation in operations(journal):
        model.step(operation)
    return model


async def _written(path: Path) -> None:
    log = await open_store(path)
    for number in range(_EVENTS):
        await log.append(f"job.{number % 3}", ANY_VERSION, [a_fact(str(number))])
    await log.close()


def position_of(tree: Mapping[str, bytes], folder: Path) -> int:
    """Return the position that the backup reaches, each event proven; 0 where there is none."""
    write_out(tree, folder)
    if not (folder / "backup").exists():
        return 0
    archive = Archive.open(folder / "backup")
    verdict = verify_archive(archive, HashChain())
    assert verdict.is_intact, verdict.problem
    return archive.position


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("until", [_EVENTS, _EVENTS // 2])
def test_backup_that_a_killed_run_had_written_is_on_the_disk_once_the_next_says_so(tmp_path: Path, until: int) -> None:
    disk = backed_up(tmp_path, ("killed", until, _KILLED), ("whole", _EVENTS, 0))
    for number, loss in enumerate(Loss):
        rng = rng_at(1, number)
        assert position_of(disk.after_power_cut(loss, rng), tmp_path / loss) == _EVENTS, loss


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_run_that_is_killed_leaves_its_segments_to_the_kernel(tmp_path: Path) -> None:
    disk = backed_up(tmp_path, ("killed", _EVENTS, _KILLED))
    assert position_of(disk.now(), tmp_path / "now") == _EVENTS
    assert position_of(disk.after_power_cut(Loss.ALL, rng_at(1, 0)), tmp_path / "cut") == 0
