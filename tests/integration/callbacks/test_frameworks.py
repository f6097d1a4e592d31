"""What frameworks make of a resize with voda's callbacks: samples trained, epochs reported. Each really runs."""

import json
import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.needs import TORCH_VENV, needs_torch_venv

pytestmark = [pytest.mark.slow, needs_torch_venv()]

ROOT = Path(__file__).parents[3]


class Report(NamedTuple):
    epoch: float
    is_timed: bool
    workers: int


class Outcome(NamedTuple):
    exits: list[list[int]]
    """Of each start: of each rank."""
    times: Mapping[int, int]
    """How often a sample was trained -> how many samples were."""
    reports: list[Report]
    words: str


def outcomes(folder: Path, program: str) -> dict[str, Outcome]:
    """Run a program of trainings in the venv of PyTorch; its reports go to an API of this test."""
    reports: dict[str, list[Report]] = defaultdict(list)

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reports[self.path.split("/")[4]].append(Report(body["epoch"], "epoch_time_s" in body, body["workers"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as api:
        threading.Thread(target=api.serve_forever, daemon=True).start()
        told = {
            "PYTHONPATH": str(ROOT),
            "VODA_API_URL": f"http://127.0.0.1:{api.server_port}",
            "KERAS_BACKEND": "torch",
        }
        env = {**os.environ, **told, "CUDA_VISIBLE_DEVICES": ""}  # noqa: TID251 - of the tests' own process
        script = Path(__file__).parent / "programs" / program
        command = [str(TORCH_VENV / "bin" / "python"), str(script)]
        ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=500, check=False)
        api.shutdown()
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {each["case"]: _outcome(each, reports[each["case"]], folder) for each in found}


def _outcome(found: dict[str, Any], reports: list[Report], folder: Path) -> Outcome:
    words = "".join(file.read_text("utf-8", "replace") for file in (folder / found["case"]).glob("output-*"))
    return Outcome(found["exits"], {int(n): count for n, count in found["times"].items()}, reports, words)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return outcomes(tmp_path_factory.mktemp("trainer"), "with_trainer.py")


@pytest.fixture(scope="module")
def lightning(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return outcomes(tmp_path_factory.mktemp("lightning"), "with_lightning.py")


@pytest.fixture(scope="module")
def keras(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return outcomes(tmp_path_factory.mktemp("keras"), "with_keras.py")


@pytest.mark.parametrize(
    ("case", "most_repeated"),
    [("grown", 10), ("grown-far", 15), ("odd", 15), ("shrunk-at-border", 0), ("shrunk", 0), ("often", 20)],
)
def test_trainer_when_resized_trains_every_sample_as_often_as_the_epochs_say(
    trainer: dict[str, Outcome], case: str, most_repeated: int
) -> None:
    ended = trainer[case]
    assert all(status == 0 for start in ended.exits for status in start), ended.words[-2000:]
    assert min(ended.times) == 2
    assert 120 - ended.times[2] <= most_repeated, "a place is less than a step before the one that was reached"
    assert ended.reports[-1].epoch == 2


def test_trainer_when_steps_of_an_epoch_were_skipped_has_no_time_for_it(trainer: dict[str, Outcome]) -> None:
    assert trainer["grown"].reports == [Report(1, True, 1), Report(1.541667, False, 1), Report(2, False, 2)]
    assert trainer["shrunk-at-border"].reports == [Report(1, True, 3), Report(2, True, 1)]
    assert trainer["few-steps"].reports == [Report(1, True, 1), Report(1.25, False, 1)]


def test_trainer_when_its_place_cannot_be_set_right_ends_with_one_error(trainer: dict[str, Outcome]) -> None:
    assert trainer["unread"].exits == [[0], [1, 1]]
    assert "Trainer(callbacks=[...])" in trainer["unread"].words


@pytest.mark.parametrize("case", ["grown", "shrunk", "grown-at-border", "same"])
def test_lightning_when_resized_leaves_no_sample_out(lightning: dict[str, Outcome], case: str) -> None:
    told_to_end, resumed = lightning[case].exits
    assert (set(told_to_end), set(resumed)) == ({143}, {0}), lightning[case].words[-2000:]
    assert min(lightning[case].times) == 2


def test_lightning_when_an_epoch_is_broken_off_has_a_time_for_whole_ones_only(lightning: dict[str, Outcome]) -> None:
    assert lightning["grown"].reports == [Report(1, True, 1), Report(2, True, 2)]
    assert lightning["grown-at-border"].times == {2: 120}
    assert lightning["few-steps"].reports == [Report(1, True, 1), Report(1.25, False, 1)]


def test_keras_when_an_epoch_is_broken_off_reports_the_part_that_was_done(keras: dict[str, Outcome]) -> None:
    assert keras["stopped"].reports == [Report(1, True, 1), Report(1.5, False, 1)]
    assert keras["stopped-at-border"].reports == [Report(1, True, 1), Report(2, True, 1)]
    assert keras["killed"].reports == [Report(1, True, 1), Report(2, True, 1), Report(3, True, 1)]
    assert keras["without-length"].reports == [Report(epoch, True, 1) for epoch in (1, 2, 3)]
    assert keras["without-length-stopped"].reports == [Report(1, True, 1)]
