"""Tests that fail by chance are run once more; those that fail twice, or are many, fail the run."""

import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = """
import pathlib
import pytest

@pytest.mark.parametrize("name", {names})
def test_once(name):
    seen = pathlib.Path(__file__).with_name(name)
    was_there = seen.exists()
    seen.touch()
    assert was_there == {passes_later}
"""


def run(folder: Path, *, names: list[str], passes_later: bool) -> subprocess.CompletedProcess[str]:
    """Run tests that fail in the first run, in the second as well unless `passes_later`."""
    (folder / "test_chance.py").write_text(_TESTS.format(names=names, passes_later=passes_later or "None"))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "tools.second_try", "-q", "test_chance.py"]
    # The folder is its own root, so that names of tests are the same in both runs.
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_what_passes_alone_is_listed_as_unstable(tmp_path: Path) -> None:
    done = run(tmp_path, names=["a", "b"], passes_later=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("unstable: ") == 2


@pytest.mark.slow
def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, names=["a"], passes_later=False)
    assert done.returncode == 1, done.stdout
    assert "unstable" not in done.stdout


@pytest.mark.slow
def test_many_failures_are_no_chance(tmp_path: Path) -> None:
    done = run(tmp_path, names=["a", "b", "c", "d"], passes_later=True)
    assert done.returncode == 1
    assert "second try: none" in done.stdout
