"""A power cut under an SQLite log loses nothing that was acknowledged; and where it does, the torture says so."""

import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.needs import missing
from tests.torture.powercut import torture
from tests.torture.powercut_disk import Disk, Loss
from tests.torture.powercut_record import Kind, Operation, Unreplayable, built_shim, environment, operations

ROOT = "/disk"
_WAIT_S = 240


@pytest.fixture(scope="module")
def compiler() -> None:
    """Skip where the shim cannot be built, but never in CI."""
    if shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"):
        return
    missing("no C compiler for the shim that records file operations: install the package gcc")


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_power_cut_at_any_moment_loses_nothing_that_was_acknowledged() -> None:
    report = torture(rounds=60, seed=1)
    assert report.problems == []
    assert report.rounds == 60


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("synchronous", "drops_flushes"),
    [pytest.param("OFF", False, id="off"), pytest.param("NORMAL", False, id="normal"), ("FULL", True)],
)
def test_log_that_does_not_flush_is_found_to_lose(synchronous: str, drops_flushes: bool) -> None:
    report = torture(rounds=25, seed=1, synchronous=synchronous, drops_flushes=drops_flushes)
    assert any("was acknowledged at position" in problem or "the log is gone" in problem for problem in report.problems)


@pytest.mark.usefixtures("compiler")
def test_write_that_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    program = (
        "import mmap, sys; file = open(sys.argv[1], 'w+b'); file.write(b'x' * 4096); file.flush();"
        " mmap.mmap(file.fileno(), 4096)[0] = 65"
    )
    disk, journal = tmp_path / "disk", tmp_path / "journal"
    disk.mkdir()
    subprocess.run(
        [sys.executable, "-c", program, str(disk / "file")],
        env=environment(built_shim(tmp_path), disk, journal),
        timeout=_WAIT_S,
        check=True,
    )
    with pytest.raises(Unreplayable, match=r"mmap on .*/file: teach the shim"):
        operations(journal)


# ---- the model of a disk


def a_disk(*operations: Operation) -> Disk:
    """Return a disk to which all of this was done."""
    disk = Disk(ROOT)
    for operation in operations:
        disk.step(operation)
    return disk


def create(name: str, inode: int = 1) -> Operation:
    return Operation(Kind.CREATE, inode, 0, f"{ROOT}/{name}", b"")


def write(data: bytes, *, at: int = 0, inode: int = 1) -> Operation:
    return Operation(Kind.WRITE, inode, at, "", data)


def cut(size: int) -> Operation:
    return Operation(Kind.TRUNCATE, 1, size, "", b"")


SYNC = Operation(Kind.SYNC, 1, 0, "", b"")
SYNC_NAMES = Operation(Kind.SYNC_FOLDER, 2, 0, ROOT, b"")


@pytest.mark.parametrize("loss", Loss)
def test_what_was_flushed_is_there_whatever_is_lost(loss: Loss) -> None:
    disk = a_disk(create("a"), write(b"kept"), SYNC, SYNC_NAMES)
    assert all(disk.after_power_cut(loss, Random(seed)) == {"a": b"kept"} for seed in range(20))


def test_file_whose_name_was_not_flushed_may_be_gone() -> None:
    disk = a_disk(create("a"), write(b"kept"), SYNC)
    assert disk.after_power_cut(Loss.ALL, Random(1)) == {}
    assert disk.after_power_cut(Loss.NOTHING, Random(1)) == {"a": b"kept"}


def test_removed_name_that_was_not_flushed_may_be_back() -> None:
    gone = Operation(Kind.UNLINK, 0, 0, f"{ROOT}/a", b"")
    disk = a_disk(create("a"), write(b"kept"), SYNC, SYNC_NAMES, gone)
    assert {len(disk.after_power_cut(Loss.SCATTERED, Random(seed))) for seed in range(20)} == {0, 1}


def test_sectors_that_were_not_flushed_are_old_or_new_one_by_one() -> None:
    disk = a_disk(create("a"), write(b"o" * 8192), SYNC, SYNC_NAMES, write(b"n" * 8192))
    found = [disk.after_power_cut(Loss.SCATTERED, Random(seed))["a"] for seed in range(50)]
    assert all(set(bytes(contents[first : first + 64])) in ({111}, {110}) for contents in found for first in (0, 4096))
    assert any(b"on" in contents for contents in found)
    assert any(b"no" in contents for contents in found)


def test_later_write_may_be_there_without_an_earlier_one() -> None:
    disk = a_disk(create("a"), write(b"o" * 8192), SYNC, SYNC_NAMES, write(b"1" * 4096), write(b"2" * 4096, at=4096))
    found = {disk.after_power_cut(Loss.SCATTERED, Random(seed))["a"][::4096] for seed in range(50)}
    assert {b"o2", b"1o", b"oo", b"12"} <= found


def test_bytes_that_were_flushed_stay_though_their_sector_is_written_again() -> None:
    disk = a_disk(create("a"), write(b"kept"), SYNC, SYNC_NAMES, write(b"more", at=4))
    found = {disk.after_power_cut(Loss.SCATTERED, Random(seed))["a"] for seed in range(50)}
    assert found == {b"kept", b"keptmore", b"kept\0\0\0\0"}


def test_size_after_a_cut_that_was_not_flushed_is_old_or_new() -> None:
    disk = a_disk(create("a"), write(b"kept"), SYNC, SYNC_NAMES, cut(0), write(b"n"))
    found = {disk.after_power_cut(Loss.TAIL, Random(seed))["a"] for seed in range(50)}
    assert found == {b"kept", b"", b"n"}
