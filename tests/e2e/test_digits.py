"""The examples under `voda up`: real ranks and agents that grow and shrink, outlive a killed voda, and learn."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.bench_reaction import has_lines
from benchmarks.served import Served, command, environment, start
from tests.needs import TORCH_VENV, needs_torch_venv
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 240.0
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-mpi"
EPOCHS, PASSES = 12, 35

STEPS = """
import os, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
if dist.get_rank() == 0:
    with open(os.path.join(os.environ["VODA_JOB_DIR"], "sizes"), "a") as file:
        file.write(f"{dist.get_world_size()}\\n")
while True:
    dist.all_reduce(one)
    time.sleep(0.1)
"""


class Stage:
    """A folder, the voda that runs on it, and what its log tells."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.options = ["--port", "0", "--slots", "3", "--ratelimit", "0"]
        self.served: Served | None = None

    def up(self) -> Served:
        self.served = served = start(self.home, *self.options)
        # A restart keeps the port, as with the default one: the job reports to it.
        self.options[1] = served.url.rpartition(":")[2]
        return served

    def voda(self, *arguments: str) -> str:
        done = subprocess.run(
            command(*arguments),
            env=environment(self.home),
            cwd=EXAMPLE,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def facts(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        told: dict[str, list[Mapping[str, Any]]] = {}
        for line in self.voda("events", str(self.home / "voda.db"), "--job", "digits", "-o", "json").splitlines():
            told.setdefault(json.loads(line)["type"], []).append(json.loads(line)["data"])
        return told

    def job(self) -> Mapping[str, Any]:
        assert self.served is not None
        found: Mapping[str, Any] = self.served.get("/api/v1/jobs/digits")
        return found

    def printed(self) -> str:
        return (self.home / "jobs" / "digits" / "logs" / "launcher.log").read_text()

    def until(self, is_so: Callable[[], Any], what: str) -> None:
        deadline = time.perf_counter() + WAIT_S
        while not is_so():
            assert time.perf_counter() < deadline, f"waited {WAIT_S:.0f} s for {what}:\n{self.printed()}"
            time.sleep(0.05)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    if made.served is not None:
        made.served.kill()
        start(tmp_path, "--port", "0", "--halt-on-exit").stop()


def a_manifest(folder: Path) -> Path:
    """Return the example's manifest with fewer and shorter epochs."""
    manifest = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    manifest["metadata"]["annotations"] |= {"voda.dev/max-replicas": "2", "voda.dev/epochs": str(EPOCHS)}
    container = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    words = container["args"]
    for option, number in (("--epochs", EPOCHS), ("--passes", PASSES)):
        words[words.index(option) + 1] = str(number)
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(manifest))
    return path


def test_digits_when_resized_and_voda_is_killed_report_every_epoch_once(stage: Stage) -> None:
    stage.up()
    stage.voda("submit", str(a_manifest(stage.home)))
    stage.until(lambda: stage.job()["progress"]["epochs_done"] >= 1, "an epoch of two ranks")
    # Not by --max alone: so short a job is not worth a restart.
    stage.voda("scale", "digits", "--min", "3", "--max", "3")
    stage.until(lambda: "3 ranks begin at epoch" in stage.printed(), "three ranks")
    assert stage.served is not None
    stage.served.kill()
    done = stage.printed().count(": loss")
    stage.until(lambda: stage.printed().count(": loss") > done, "an epoch while voda is dead")
    stage.up()
    stage.voda("scale", "digits", "--min", "1", "--max", "1")
    stage.until(lambda: stage.job()["phase"] != "Running", "the end")
    assert stage.job()["phase"] == "Completed", stage.job()
    assert "1 ranks begin at epoch" in stage.printed()
    assert stage.printed().count("begin at epoch 0, step 0") == 1
    stage.served.stop()
    facts = stage.facts()
    reports = facts["job.progressed"]
    assert [report["epochs_done"] for report in reports] == list(range(1, EPOCHS + 1))
    assert reports[-1]["metrics"]["accuracy"] > 0.7
    # Two workers, and the third: the successor of the killed voda starts nothing that runs.
    assert [len(fact["workers"]) for fact in facts["worker.started"]] == [2, 1]
    stage.voda("replay", str(stage.home / "voda.db"), "--verify")


@needs_torch_venv()
def test_digits_under_torchrun_when_grown_learn_on(stage: Stage) -> None:
    served = stage.up()
    folder = EXAMPLE.with_name("digits-torch")
    manifest = yaml.safe_load((folder / "job.yaml").read_text())
    manifest["metadata"]["annotations"] |= {"voda.dev/working-dir": str(folder), "voda.dev/epochs": "8"}
    # Small at first, whatever room there is; torchrun may have more.
    manifest["metadata"]["annotations"]["voda.dev/max-replicas"] = "1"
    manifest["spec"]["elasticPolicy"] |= {"maxReplicas": 2}
    manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
    container = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    # Not a torchrun that the machine has as well: the PyTorch that the tests saw to.
    container["command"] = [str(TORCH_VENV / "bin" / "torchrun"), "train.py", "--epochs", "8", "--passes", "600"]
    served.ask("POST", "/api/v1/jobs", manifest)

    def job() -> Mapping[str, Any]:
        found: Mapping[str, Any] = served.get("/api/v1/jobs/digits-torch")
        return found

    def until(is_so: Callable[[], bool], what: str) -> None:
        deadline = time.perf_counter() + WAIT_S
        while not is_so():
            assert time.perf_counter() < deadline, f"waited {WAIT_S:.0f} s for {what}: {job()}"
            time.sleep(0.1)

    until(lambda: job()["progress"]["epochs_done"] >= 1, "an epoch of one agent")
    stage.voda("scale", f"{job()['user']}/digits-torch", "--min", "2", "--max", "2")
    until(lambda: job()["phase"] != "Running", "the end")
    seen = job()
    assert seen["phase"] == "Completed", seen
    assert seen["progress"]["epochs_done"] == 8
    assert seen["progress"]["metrics"]["accuracy"] > 0.9
    reported = {row["workers"] for row in served.get("/api/v1/jobs/digits-torch/progress")["items"]}
    assert reported == {1, 2}, "it trained at both sizes"
    stage.voda("replay", str(stage.home / "voda.db"), "--verify")


@needs_torch_venv()
def test_torchrun_when_scaled_trains_at_each_size_and_no_failure_is_counted(stage: Stage) -> None:
    program = stage.home / "train.py"
    program.write_text(STEPS)
    stage.options[stage.options.index("--slots") + 1] = "4"
    served = stage.up()
    manifest = yaml.safe_load((EXAMPLE.with_name("digits-torch") / "job.yaml").read_text())
    # It begins with the narrowest bounds: what is beyond them is a matter of `voda scale` alone.
    manifest["metadata"] = {"name": "steps"}
    manifest["spec"]["elasticPolicy"] |= {"minReplicas": 1, "maxReplicas": 1}
    worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["replicas"] = 1
    worker["template"]["spec"]["containers"][0]["command"] = [str(TORCH_VENV / "bin" / "torchrun"), str(program)]
    served.ask("POST", "/api/v1/jobs", manifest)
    seen = stage.home / "jobs" / "steps" / "sizes"
    sizes = [1, 2, 3, 2, 3, 1, 4]
    for number, size in enumerate(sizes, 1):
        asked_at = time.perf_counter()
        if number > 1:
            stage.voda("scale", "@steps", str(size))
        wait_until(partial(has_lines, seen, number), partial(str, f"no step at {size}"))
        sys.stdout.write(f"{size} workers: first step after {time.perf_counter() - asked_at:.1f} s\n")
    assert [int(size) for size in seen.read_text().split()] == sizes
    job = served.get("/api/v1/jobs/steps")
    assert (job["phase"], job["program_failures"], job["failures"]) == ("Running", 0, 0), job
