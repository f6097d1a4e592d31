"""The steps of deploy/Dockerfile that need no registry: the wheel, of the files that are copied, and voda from it.

Rule: what the builder does not copy is not there; the locked packages are those of this environment.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from shutil import copy2, copytree, ignore_patterns

import pytest

from tests.unit.test_deployment import of, stages

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 120.0

pytestmark = pytest.mark.slow


def run(*command: object, home: Path) -> str:
    """Run a program as the image does: with next to nothing in the environment."""
    environment = {"PATH": os.defpath, "HOME": str(home), "VODA_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [str(word) for word in command]
    done = subprocess.run(words, env=environment, cwd=home, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the builder copies, and nothing else."""
    folder = tmp_path_factory.mktemp("context")
    for copied in of(stages()[0], "COPY"):
        *names, _ = copied.split()
        for name in names:
            if (ROOT / name).is_dir():
                copytree(ROOT / name, folder / name, ignore=ignore_patterns("__pycache__", "*.py[co]"))
            else:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def installed(context: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs' folder of an environment with voda's wheel; nobody may write in it."""
    home, wheels = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("wheels")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", wheels, context, home=home)
    (wheel,) = wheels.glob("voda-*.whl")
    place = tmp_path_factory.mktemp("opt") / "voda"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, home=home)
    (site,) = (place / "lib").glob("python*/site-packages")
    # The packages of the lock; voda itself comes first, by the order of the path.
    (site / "locked.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return place / "bin"


def test_voda_of_the_image_tells_its_version_and_is_the_one_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "voda", "--version", home=tmp_path).startswith("voda ")
    told = run(installed / "python", "-c", "import voda; print(voda.__file__)", home=tmp_path)
    assert Path(told.strip()).is_relative_to(installed.parent)


def test_command_of_the_image_is_one_that_voda_has(installed: Path, tmp_path: Path) -> None:
    *_, last = stages()
    command, *arguments = json.loads(of(last, "CMD")[0])
    options = [word for word in arguments if word.startswith("--")]
    told = run(installed / "voda", command, "--help", home=tmp_path)
    assert [option for option in options if option not in told] == []


def test_log_of_the_image_is_made_from_the_revisions_within_the_wheel(installed: Path, tmp_path: Path) -> None:
    log = tmp_path / "voda.db"
    made = "import asyncio, sys; from voda.log.factory import open_store; asyncio.run(open_store(sys.argv[1]))"
    run(installed / "python", "-c", made, log, home=tmp_path)
    assert run(installed / "voda", "log", "migrate", log, home=tmp_path) == f"{log} is ready for this version\n"
