"""Claims about which Python runs a program: the one that the caller's shell finds, on a PATH that the job gets too."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from voda import config
from voda.programs.interpreter import missing_libraries
from voda.programs.program import Program, ProgramStart, start_of
from voda.programs.program_manifest import program_manifest

HIDES_TORCH = """\
import importlib.machinery
import sys

class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "torch" else super().find_spec(name, path, target)

sys.meta_path[:] = [Without if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
"""
"""A Python that has no torch, whether or not it is installed where these tests run."""


@pytest.mark.parametrize(
    ("environment", "missing"),
    [({}, ["no_such_library"]), ({"A": "\0"}, []), ({"A=B": "1"}, []), ({"A": "\ud800"}, [])],
)
def test_library_is_missing_only_where_a_python_says_so(environment: dict[str, str], missing: list[str]) -> None:
    assert [*missing_libraries(sys.executable, ["json", "no_such_library"], environment)] == missing


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that commands are called in, with a script; voda's own Python is in voda/bin, without torch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "spread.py").write_text("import torch.distributed\n")
    monkeypatch.setattr("sys.executable", a_python(tmp_path / "voda/bin"))
    return tmp_path


def a_python(folder: Path, *names: str, has_torch: bool = False) -> str:
    """Return a Python, by default called `python`, in a folder beside its libraries."""
    libraries = folder.with_name("lib")
    for made in (folder, libraries):
        made.mkdir(parents=True, exist_ok=True)
    if has_torch:
        (libraries / "torch").mkdir()
        (libraries / "torch" / "__init__.py").touch()
    else:
        (libraries / "sitecustomize.py").write_text(HIDES_TORCH)
    for name in names or ("python",):
        (folder / name).write_text(f'#!/bin/sh\nPYTHONPATH={libraries} exec {REAL} "$@"\n')
        (folder / name).chmod(0o755)
    return str(folder / (names or ("python",))[0])


REAL = sys.executable


def started(
    words: str, path: Sequence[str], *, env: Mapping[str, str] | None = None, caller: Mapping[str, str] | None = None
) -> ProgramStart:
    """Return how a program is started by somebody with this PATH, and other variables."""
    return start_of(Program(words.split(), env=env or {}), {**(caller or {}), "PATH": ":".join(path)})


def container(start: ProgramStart) -> dict[str, object]:
    role = program_manifest(start.job)["spec"]["pytorchReplicaSpecs"]["Worker"]
    made: dict[str, object] = role["template"]["spec"]["containers"][0]
    return made


def test_program_gets_the_path_of_its_caller_as_seen_from_here_before_that_of_the_machine(folder: Path) -> None:
    python = a_python(folder / "venv/bin", has_torch=True)
    start = started("python train.py", ["venv/bin", "", "/usr/bin", f"{folder}/venv/bin", "/odd\udcff"])
    assert (start.runs_with, start.warning) == (python, "")
    assert container(start)["command"] == ["python", "train.py"]
    assert container(start)["env"] == [
        {"name": "PATH", "value": f"{folder}/venv/bin:{folder}:/usr/bin:$(PATH)"},
    ]
    assert program_manifest(start.job)["metadata"]["annotations"]["voda.dev/interpreter"] == python


def test_variables_of_the_environment_that_is_on_the_path_go_along_and_no_others(folder: Path) -> None:
    a_python(folder / "venv/bin", has_torch=True)
    caller = {"CONDA_PREFIX": "/opt/conda", "AWS_SECRET_ACCESS_KEY": "leaks", "PYENV_VERSION": "3.12"}
    start = started("python train.py", [f"{folder}/venv/bin"], caller={**caller, "VIRTUAL_ENV": f"{folder}/venv"})
    assert dict(start.job.env) == {"VIRTUAL_ENV": f"{folder}/venv"}
    start = started("python train.py", [f"{folder}/venv/bin", "/home/ada/.pyenv/shims"], caller=caller)
    assert dict(start.job.env) == {"PYENV_VERSION": "3.12"}


def test_vodas_own_python_where_it_lacks_what_the_script_imports_is_passed_over(folder: Path) -> None:
    python = a_python(folder / "venv/bin", has_torch=True)
    path = [f"{folder}/voda/bin", f"{folder}/venv/bin"]
    start = started("python train.py", path)
    assert (start.runs_with, start.warning, start.job.path) == (python, "", path[1])
    (folder / "voda/lib/sitecustomize.py").unlink()
    (folder / "voda/lib/torch").mkdir()
    (folder / "voda/lib/torch/__init__.py").touch()
    assert started("python train.py", path).runs_with == f"{folder}/voda/bin/python"


def test_python_that_lacks_what_the_script_imports_is_told_with_what_to_do(folder: Path) -> None:
    own, other = f"{folder}/voda/bin/python", a_python(folder / "venv/bin")
    told = "has no torch: the job would fail at once; put the Python that has it first on your PATH, or name that by"
    assert f"warning: {own} {told}" in started("python train.py", [f"{folder}/voda/bin"]).warning
    assert f"warning: {other} {told}" in started("python train.py", [f"{folder}/venv/bin"]).warning


def test_libraries_that_the_caller_alone_would_find_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_python(folder / "venv/bin")
    monkeypatch.setenv("PYTHONPATH", f"{folder}/more")
    said = "it does not get your PYTHONPATH: --export PYTHONPATH passes that on"
    assert said in started("python train.py", [f"{folder}/venv/bin"]).warning
    assert said not in started("python train.py", [f"{folder}/venv/bin"], env={"PYTHONPATH": "x"}).warning


@pytest.mark.parametrize("words", ["python train.py", "train.py"])
def test_python3_of_the_caller_goes_before_a_python_that_only_voda_has(folder: Path, words: str) -> None:
    python = a_python(folder / "usr/bin", "python3", has_torch=True)
    start = started(words, [f"{folder}/usr/bin"])
    assert (start.runs_with, start.job.words) == (python, ("python3", "train.py"))


def test_torchrun_is_that_of_the_python_which_the_command_names(folder: Path) -> None:
    python, other = a_python(folder / "venv/bin", has_torch=True), folder / "usr/bin"
    a_python(other)
    (other / "torchrun").write_text(f"#!{other}/python\n")
    (other / "torchrun").chmod(0o755)
    path = [f"{folder}/venv/bin", str(other)]
    module = [python, "-m", "torch.distributed.run"]
    assert container(started("python spread.py --lr 1", path))["command"] == [*module, "spread.py", "--lr", "1"]
    named = container(started(f"{python} -u spread.py", ["/usr/bin"]))
    assert named["command"] == [*module, "--no_python", python, "-u", "spread.py"]
    (folder / "venv/bin/torchrun").write_text(f"#!{python}\n")
    (folder / "venv/bin/torchrun").chmod(0o755)
    assert container(started("python spread.py", path))["command"] == ["torchrun", "spread.py"]


def test_python_of_a_launchers_first_line_is_the_one_that_runs_the_program(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = a_python(folder / "venv/bin", has_torch=True)
    (folder / "venv/bin/accelerate").write_text(f"#!{python}\n")
    (folder / "venv/bin/accelerate").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/venv/bin:/usr/bin:/bin")
    start = start_of(Program(["accelerate", "launch", "spread.py"], workers="1-2"), config.environment())
    assert (start.runs_with, start.job.launcher, start.job.name) == (python, "torchrun", "spread")
    assert container(start)["command"] == ["accelerate", "launch", "spread.py"]


def test_path_that_the_user_gives_is_the_jobs(folder: Path) -> None:
    a_python(folder / "venv/bin", has_torch=True)
    start = start_of(Program(["python", "train.py"], env={"PATH": f"{folder}/venv/bin:/usr/bin"}))
    assert container(start)["env"] == [{"name": "PATH", "value": f"{folder}/venv/bin:/usr/bin"}]
    assert "voda.dev/interpreter" not in program_manifest(start.job)["metadata"]["annotations"]
