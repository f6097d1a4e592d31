"""What tests need of the machine. Rule: what is missing skips a test on a developer's machine, and fails it in CI."""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final, NoReturn

import pytest

TORCH_VENV: Final = Path(__file__).parents[1] / ".venv-torch"
"""A user's own venv: PyTorch and its frameworks, without voda (`python3 tools/bootstrap.py --torch` makes it)."""
_IN_CI = bool(os.environ.get("CI"))  # noqa: TID251 - tests have no voda.config


def missing(reason: str) -> NoReturn:
    """Skip the test that runs; in CI, fail it. `reason` says what is missing and how to get it."""
    if _IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


def needs(there: bool, reason: str) -> pytest.MarkDecorator:
    """Skip tests unless something is there; in CI they run, and fail."""
    return pytest.mark.skipif(not there and not _IN_CI, reason=reason)


def needs_module(name: str, reason: str) -> pytest.MarkDecorator:
    """Skip tests unless a module can be imported; in CI they run, and fail."""
    return needs(importlib.util.find_spec(name) is not None, reason)


def needs_debians_mpi() -> pytest.MarkDecorator:
    """Skip tests unless Debian's Open MPI and MPICH are there; in CI they run, and fail."""
    there = all(map(shutil.which, ("mpirun.openmpi", "mpirun.mpich")))
    return needs(there, "needs Open MPI 4 and MPICH: python3 tools/bootstrap.py --mpi")


def needs_torch_venv() -> pytest.MarkDecorator:
    """Skip tests unless TORCH_VENV is there; in CI they run, and fail."""
    return needs((TORCH_VENV / "bin" / "torchrun").exists(), "needs PyTorch: python3 tools/bootstrap.py --torch")
