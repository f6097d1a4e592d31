"""Files are written whole or not at all, and nothing of a failed attempt stays behind."""

import os
import resource
import signal
import stat
from pathlib import Path

import pytest

from voda.files import write_whole


@pytest.mark.parametrize("durably", [True, False])
def test_write_whole_when_the_file_is_there_replaces_it_and_leaves_nothing_else(tmp_path: Path, durably: bool) -> None:
    path = tmp_path / "record"
    path.write_bytes(b"old")
    write_whole(path, b"new", durably=durably, mode=0o600)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["record"]


def test_write_whole_when_the_file_system_takes_no_more_keeps_the_old_content_alone(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_whole(path, b"x" * 8192)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["record"]


def test_write_whole_when_durable_flushes_the_folder_after_the_name_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[bool, bool]] = []
    path, fsync = tmp_path / "record", os.fsync

    def recorded(handle: int) -> None:
        flushed.append((stat.S_ISDIR(os.fstat(handle).st_mode), path.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    write_whole(path, b"new", durably=True)
    assert flushed == [(False, False), (True, True)]
