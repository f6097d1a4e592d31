"""Claims about what is known of a program before it is sent: what could not be executed is refused or warned of."""

import sys
from pathlib import Path

import pytest

from tests.unit.programs.test_interpreter import HIDES_TORCH
from voda.domain.errors import InvalidInput
from voda.programs.launchers import Launcher
from voda.programs.program import Program, start_of


def a_file(folder: Path, name: str, mode: int) -> str:
    file = folder / name
    file.write_text("#!/bin/sh\n")
    file.chmod(mode)
    return str(file)


def test_program_at_a_path_where_there_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^\./run\.sh: there is no such file here; if it lies elsewhere, say how"):
        start_of(Program(["./run.sh"], workdir=str(tmp_path)))
    with pytest.raises(InvalidInput, match="there is no such file here"):
        start_of(Program([str(tmp_path)]))


@pytest.mark.parametrize("words", [["python", "trian.py"], ["./trian.py"]])
def test_file_that_is_not_there_is_refused_with_what_is_like_it(tmp_path: Path, words: list[str]) -> None:
    a_file(tmp_path, "train.py", 0o755)
    (tmp_path / "trian.d").mkdir()
    with pytest.raises(InvalidInput, match=r"there is no such file here \(did you mean train\.py\?\); if it lies"):
        start_of(Program(words, workdir=str(tmp_path)))


def test_program_that_may_not_be_executed_is_refused_with_what_to_do(tmp_path: Path) -> None:
    a_file(tmp_path, "run.sh", 0o644)
    with pytest.raises(InvalidInput, match=r"you may not execute it \(chmod \+x \./run\.sh, or name its interpreter"):
        start_of(Program(["./run.sh"], workdir=str(tmp_path)))


def test_program_that_can_be_executed_or_lies_elsewhere_is_taken(tmp_path: Path) -> None:
    assert not start_of(Program([a_file(tmp_path, "run.sh", 0o755)])).warning
    assert start_of(Program(["/opt/run.sh"], launcher="plain")).job.words == ("/opt/run.sh",)
    assert start_of(Program(["/opt/run.sh"], image="busybox")).job.words == ("/opt/run.sh",)


def test_program_that_is_not_on_the_path_is_refused_with_what_is_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_file(tmp_path, "python", 0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = r"^pyton: there is no such program on the PATH here \(did you mean python\?\); if it lies elsewhere, say"
    with pytest.raises(InvalidInput, match=expected):
        start_of(Program(["pyton", "-m", "fit"]))
    with pytest.raises(InvalidInput, match=r"^quux: there is no such program on the PATH here; if it lies"):
        start_of(Program(["quux"]))
    assert not start_of(Program(["python", "-c", "1"])).warning


def test_program_on_the_path_of_the_job_or_of_voda_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_file(tmp_path, "fit", 0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    assert start_of(Program(["fit"], env={"PATH": str(tmp_path)})).job.words == ("fit",)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert not start_of(Program(["fit"])).warning


def test_program_and_launcher_that_are_not_on_the_path_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    warning = start_of(Program(["fit"], launcher="torchrun")).warning
    assert warning == "warning: fit and torchrun are not on the PATH here"
    assert not start_of(Program(["fit"], image="busybox")).warning


def test_program_behind_a_launcher_gives_the_job_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_file(tmp_path, "torchrun", 0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    start = start_of(Program(["torchrun", "Train_Model.py"], workers="1-4"))
    assert (start.job.name, start.program) == ("train-model", "Train_Model.py")
    assert start.job.words == ("torchrun", "Train_Model.py")
    assert "runs Train_Model.py with torchrun, because the command begins with torchrun" in start.note


def test_program_whose_launcher_the_user_named_is_no_guess(tmp_path: Path) -> None:
    for name, source in {"dist.py": "import torch.distributed", "fit.py": "import os", "odd.py": "print 'old'"}.items():
        (tmp_path / name).write_text(source)

    def is_guessed(*words: str, launcher: Launcher | None = None) -> bool:
        return start_of(Program(words, workdir=str(tmp_path), image="train:1", launcher=launcher)).is_guessed

    def is_guessed_here(*words: str) -> bool:
        return start_of(Program(words, workdir=str(tmp_path))).is_guessed

    assert is_guessed_here("python3", "dist.py")
    assert is_guessed_here("python3", "odd.py")
    assert not is_guessed_here("python3", "fit.py")
    assert not is_guessed("torchrun", "dist.py")
    assert not is_guessed("python3", "dist.py", launcher="torchrun")


def test_secret_that_the_jobs_process_would_refuse_is_warned_of(tmp_path: Path) -> None:
    def warning(name: str) -> str:
        return start_of(Program(["python", "-c", "1"], env_from_file={"KEY": str(tmp_path / name)})).warning

    assert warning(Path(a_file(tmp_path, "good", 0o600)).name) == ""
    assert "may be read by others: chmod 600 it" in warning(Path(a_file(tmp_path, "open", 0o644)).name)
    assert f"the file {tmp_path}/absent of the variable KEY is not here" in warning("absent")
    (tmp_path / "link").symlink_to(tmp_path / "good")
    assert "is no regular file" in warning("link")


def a_torchrun(folder: Path, first_line: str) -> str:
    """Return a PATH whose torchrun has this first line."""
    folder.mkdir(exist_ok=True)
    file = folder / "torchrun"
    file.write_text(f"{first_line}\nimport torch\n")
    file.chmod(0o755)
    return f"{folder}:{Path(sys.executable).parent}"


def warning_of(path: str, **env: str) -> str:
    return start_of(Program(["python", "fit.py"], launcher="torchrun", env={"PATH": path, **env})).warning


@pytest.mark.parametrize("first_line", [f"#!{sys.executable}", "#!/usr/bin/env python"])
def test_torchrun_whose_python_has_no_torch_is_told_with_that_python(tmp_path: Path, first_line: str) -> None:
    path = a_torchrun(tmp_path / "bin", first_line)
    libraries = tmp_path / "libraries"
    (libraries / "torch").mkdir(parents=True)
    (libraries / "torch" / "__init__.py").touch()
    (libraries / "sitecustomize.py").write_text(HIDES_TORCH)
    python = Path(sys.executable).parent / Path(first_line.split()[-1].removeprefix("#!")).name
    assert f"warning: {python} has no torch: the job would fail at once" in warning_of(path, PYTHONPATH=str(libraries))
    (libraries / "sitecustomize.py").unlink()
    assert warning_of(path, PYTHONPATH=str(libraries)) == ""


def test_torchrun_whose_python_has_torch_where_only_the_job_will_find_it_is_taken(tmp_path: Path) -> None:
    path = a_torchrun(tmp_path / "bin", f"#!{sys.executable}")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(HIDES_TORCH)
    hidden = str(tmp_path / "hidden")
    assert warning_of(path, PYTHONPATH=hidden) != ""
    assert warning_of(f"$(HOME)/bin:{path}", PYTHONPATH=hidden) == ""
    assert warning_of(path, PYTHONPATH=f"{hidden}:$(LIBRARIES)") == ""


def test_torchrun_whose_python_has_torch_on_a_safe_path_is_taken(tmp_path: Path) -> None:
    """Such a path does not begin with the current folder."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    path = a_torchrun(tmp_path / "bin", f"#!{sys.executable}")
    assert warning_of(path, PYTHONPATH=str(tmp_path), PYTHONSAFEPATH="1") == ""


@pytest.mark.parametrize("first_line", ["#!/bin/sh", "", "#!/nowhere/python3", "#!'", "#!"])
def test_torchrun_whose_python_is_not_known_is_taken(tmp_path: Path, first_line: str) -> None:
    assert warning_of(a_torchrun(tmp_path / "bin", first_line)) == ""
