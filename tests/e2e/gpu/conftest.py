"""This machine's GPU, and a daemon of MPS for it; without either, tests are skipped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.gpu.mps import mps_control, mps_daemon
from tests.needs import missing
from voda.cluster.local.devices import GpuReading, open_driver


@pytest.fixture(scope="session")
def gpu() -> GpuReading:
    """The first GPU of this machine."""
    shown = open_driver()()
    if not shown:
        missing("this machine has no NVIDIA GPU whose driver answers")
    return shown[0]


@pytest.fixture
def mps(tmp_path: Path) -> Iterator[Path]:
    """The folder of the pipes of a daemon of MPS."""
    if not mps_control():
        missing("nvidia-cuda-mps-control is not installed")
    with mps_daemon(tmp_path / "mps") as pipes:
        yield pipes
