"""What a job wrote in place of voda's own notes of it."""

from pathlib import Path

import pytest

from voda.cluster.local.folder import JobFolder
from voda.cluster.local.outputs import read_last_words

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
    assert folder.replica("launcher").exit(1) is None
    assert folder.replica("launcher").last_run() == 0


def test_record_when_it_is_hostile_is_a_problem_in_a_sentence(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    (folder.path / _RECORD).write_bytes(b'{"x":' + b"[" * 100_000)
    assert folder.load() is None
    assert "recursion" in str(folder.load_or_problem())


_BOX = f"""{"-" * 74}
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-27002@1,1]
   Exit code:    1
{"-" * 74}
voda run: the program failed with exit code 1 (failure 3 of 3)
"""
_TABLE = f"{'-' * 74}\na table of the program\n{'-' * 74}"
_OWN = "epoch 1\nValueError: the learning rate is negative: -3"


@pytest.mark.parametrize(
    ("printed", "last"),
    [
        (f"{_OWN}\n{_BOX}", _OWN),
        (
            f"{_OWN}\n{'-' * 74}\na table of the program\n{'-' * 74}\n",
            f"{_OWN}\n{'-' * 74}\na table of the program\n{'-' * 74}",
        ),
        (f"{'-' * 74}\nmpirun was cut off here\n{_OWN}\n", f"{'-' * 74}\nmpirun was cut off here\n{_OWN}"),
        ("voda run: no host can be reached\n", "voda run: no host can be reached"),
        ("", ""),
    ],
)
def test_last_lines_are_those_of_the_program_and_not_of_mpirun(printed: str, last: str, tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    (folder.path / "logs" / "launcher.log").write_text(printed)
    assert read_last_words(folder, "launcher", 1).text(5) == last


def test_last_line_when_mpirun_alone_said_something_is_no_rule(tmp_path: Path) -> None:
    folder, rule = _folder(tmp_path), "-" * 74
    said = "prterun was unable to find the specified executable file\n  Executable: nosuch"
    (folder.path / "logs" / "launcher.log").write_text(f"{rule}\n{said}\n{rule}\n")
    assert read_last_words(folder, "launcher", 1).text(5) == said
    assert read_last_words(folder, "launcher", 1).text() == "  Executable: nosuch"


def test_last_lines_when_mpirun_alone_said_something_are_its_own(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    (folder.path / "logs" / "launcher.log").write_text(_BOX)
    assert "voda run: the program failed" in read_last_words(folder, "launcher", 1).text(5)
