"""Claims about what every program can import of voda: it needs an old Python and nothing else, and hides nothing."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import voda
from voda.programs.importable import package_files, with_package

OLDEST = (3, 8)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return write(tmp_path / "package")


def write(folder: Path) -> Path:
    for path, content in package_files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def imported(code: str, *folders: Path, cwd: Path, options: tuple[str, ...] = ("-S",)) -> str:
    """Return what a Python prints that has these folders on PYTHONPATH; with -S it has no voda, nor anything else."""
    env = {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


def test_program_without_voda_imports_report_and_callbacks(package: Path, tmp_path: Path) -> None:
    code = "import voda.report, voda.callbacks.keras, voda; voda.report.report(1); print(voda.__file__)"
    assert imported(code, package, cwd=tmp_path) == str(package / "voda" / "__init__.py")
    # A folder that only has the name is no voda, wherever it lies.
    (tmp_path / "voda").mkdir()
    assert imported(code, package, tmp_path, cwd=tmp_path) == str(package / "voda" / "__init__.py")


def test_voda_that_is_installed_goes_before_it(package: Path, tmp_path: Path) -> None:
    code = "import voda; from voda import report; from voda.report import report as call; print(voda.__file__, report)"
    installed = imported("import voda.cli; " + code, package, cwd=tmp_path, options=())
    assert installed.startswith(str(voda.__file__))
    assert str(package) not in installed
    other = tmp_path / "other"
    (other / "voda").mkdir(parents=True)
    (other / "voda" / "__init__.py").touch()
    (other / "voda" / "report.py").write_text("report = 'of another version'")
    assert str(package) not in imported(code, package, other, cwd=tmp_path)


def test_two_of_them_on_one_path_are_one(package: Path, tmp_path: Path) -> None:
    second = write(tmp_path / "second")
    code = "import voda.callbacks.transformers, voda; print(voda.__file__)"
    assert imported(code, package, second, cwd=tmp_path) == str(second / "voda" / "__init__.py")


@pytest.mark.parametrize("path", sorted(package_files()))
def test_file_needs_an_old_python_and_nothing_else_of_voda(path: str) -> None:
    tree = ast.parse(package_files()[path], feature_version=OLDEST)
    names = {
        name
        for node in ast.walk(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert {name for name in names if name.split(".")[0] == "voda"} <= {"voda.report", "voda.callbacks._distributed"}
    assert {name.split(".")[0] for name in names} - {"voda", "__future__"} <= sys.stdlib_module_names
    is_annotated = any(isinstance(node, ast.AnnAssign | ast.arg) and node.annotation for node in ast.walk(tree))
    # Otherwise an old Python evaluates `float | None`.
    assert not is_annotated or "__future__" in names


def test_folder_comes_last_on_the_path_of_the_program() -> None:
    folder = Path("/var/lib/voda")
    assert with_package({}, folder) == {"PYTHONPATH": "/var/lib/voda"}
    assert with_package({"PYTHONPATH": "src:lib", "A": "1"}, folder) == {
        "PYTHONPATH": "src:lib:/var/lib/voda",
        "A": "1",
    }
