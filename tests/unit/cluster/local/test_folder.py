"""What a job wrote in place of voda's own notes of it."""

from pathlib import Path

import pytest

from voda.cluster.local.folder import JobFolder

_EXIT, _RECORD = ".voda/replicas/launcher/exit.json", ".voda/record.json"


def _folder(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path, "j")
    folder.make()
    folder.files.make(".voda/replicas/launcher")
    return folder


@pytest.mark.parametrize(
    "content",
    [b'{"run":1,"x":' + b"[" * 1_500, b'{"run":1}'.ljust(1 << 20), b'{"run":', b"\xff\xfe", b'{"run":"one"}', b""],
)
def test_exit_when_it_is_hostile_is_no_exit(content: bytes, tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    (folder.path / _EXIT).write_bytes(content)
    assert folder.exit("launcher", 1) is None
    assert folder.last_run("launcher") == 0


def test_record_when_it_is_hostile_is_a_problem_in_a_sentence(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    (folder.path / _RECORD).write_bytes(b'{"x":' + b"[" * 100_000)
    assert folder.load() is None
    assert "recursion" in str(folder.load_or_problem())
