"""What users of a voda that root runs can reach: folders that shut them out are named, with what to do."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import a_manifest
from voda.app.reachability import obstacle, other_voda, program_warnings, python_warning
from voda.manifests.parse import parse


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that everybody may pass; pytest's own is its user's alone."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def shut(folder: Path) -> Path:
    """Return a folder of its user alone, with a program."""
    (folder / "shut" / "bin").mkdir(parents=True)
    (folder / "shut").chmod(0o700)
    (folder / "shut" / "bin" / "train-it").write_text("#!/bin/sh\n")
    (folder / "shut" / "bin" / "train-it").chmod(0o755)
    return folder / "shut"


def test_obstacle_is_the_first_folder_that_users_cannot_pass(folder: Path, shut: Path) -> None:
    assert obstacle(folder / "home") is None
    assert obstacle(shut / "bin" / "train-it") == shut


def test_python_in_a_folder_of_root_alone_is_told_with_what_to_do(folder: Path, shut: Path) -> None:
    (folder / "venv").mkdir()
    (folder / "venv" / "python").symlink_to(shut / "bin" / "train-it")
    said = python_warning(folder / "venv" / "python", folder)
    assert f"users cannot reach {folder}/venv/python, because {shut} lets only its owner in" in said
    assert "/opt/voda && " in said
    assert "/opt/voda/bin/pip install" in said
    assert shut.name in python_warning(folder, shut / "bin")
    (shut).chmod(0o755)
    assert python_warning(folder / "venv" / "python", folder) == ""


def test_checkout_in_a_folder_of_root_alone_is_told_with_the_command_that_installs_it_for_all(
    folder: Path, shut: Path
) -> None:
    (shut / "my voda").mkdir()
    (shut / "my voda" / "Makefile").touch()
    [*_, last] = python_warning(Path("/bin/sh"), shut / "my voda" / "voda").split(": ")
    assert last == (f"git clone '{shut}/my voda' /opt/voda && make -C /opt/voda setup && /opt/voda/.venv/bin/voda up")
    [*_, last] = python_warning(shut / "bin" / "train-it", shut / "my voda" / "voda").split(": ")
    assert "make -C /opt/voda PYTHON=/usr/bin/python3 setup" in last


def test_program_that_users_cannot_reach_is_told_at_submit_with_a_hint(shut: Path) -> None:
    path = f"{shut}/bin{os.pathsep}/usr/bin:/bin"
    manifest = a_manifest()
    container = next(iter(manifest["spec"]["mpiReplicaSpecs"].values()))["template"]["spec"]["containers"][0]
    container["command"] = ["train-it"]
    [warning] = program_warnings(parse(manifest), path)
    assert f"train-it is {shut}/bin/train-it on the PATH of voda" in warning.message
    assert "give it a PATH of yours (in its env)" in warning.message
    container["env"] = [{"name": "PATH", "value": "/usr/bin"}]
    assert not [*program_warnings(parse(manifest), path)]
    container.pop("env")
    container["command"] = ["sh"]
    assert not [*program_warnings(parse(manifest), path)]


def test_voda_of_a_user_beside_that_of_root_says_which_one_commands_ask(folder: Path) -> None:
    path = folder / "voda.sock"
    assert other_voda(path) == ""
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(path))
        assert f"root's with --server unix://{path}" in other_voda(path)
