"""Programs that must not begin a second time, on one machine: `--restartable never`, as a user says it."""

import os
import signal
from pathlib import Path

import pytest
import yaml

from tests.e2e.test_up import Home, home, phase
from tests.waiting import wait_until
from voda.process_table import marked_processes

__all__ = ["home"]
pytestmark = pytest.mark.slow
_RAN = "echo begun >> $VODA_JOB_DIR/ran.txt; sleep 300"


def a_manifest(folder: Path, name: str, script: str, *, workers: int = 1, **annotations: str) -> str:
    """Write a PyTorchJob, and return its file."""
    container = {"name": "pytorch", "command": ["sh", "-c", script]}
    worker = {"replicas": workers, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": {f"voda.dev/{word}": text for word, text in annotations.items()}},
        "spec": {"runPolicy": {"backoffLimit": 0}, "pytorchReplicaSpecs": {"Worker": worker}},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(manifest))
    return str(path)


def ran(home: Home, name: str = "once") -> list[str]:
    path = home.folder / "jobs" / name / "ran.txt"
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def begun(home: Home, tmp_path: Path) -> Home:
    """A machine of two slots on which such a job runs."""
    served = home.up()
    path = a_manifest(tmp_path, "once", _RAN)
    assert home.voda("submit", path, "--restartable", "never").returncode == 0
    wait_until(lambda: bool(ran(home)), lambda: "the program to begin")
    wait_until(lambda: phase(served, "once") == "Running", lambda: "the log to know")
    return home


def test_job_gives_way_to_no_priority_and_runs_once(begun: Home, tmp_path: Path) -> None:
    rival = a_manifest(tmp_path, "rival", "sleep 300", workers=2, priority="10")
    assert begun.voda("submit", rival).returncode == 0
    small = a_manifest(tmp_path, "small", "exit 0", priority="-1")
    assert begun.voda("submit", small).returncode == 0
    # A decision has looked at the rival, and one has let a smaller job have what is left.
    assert begun.voda("wait", "small", "--timeout", "60").returncode == 0
    described = " ".join(begun.voda("describe", "once").stdout.split())
    assert "Restartable never: once its program has begun, it is not stopped for others" in described
    assert begun.voda("delete", "rival").returncode == 0
    assert ran(begun) == ["begun"]


def test_job_is_neither_halted_nor_resized_and_is_deleted(begun: Home) -> None:
    for command, done in ((("halt", "once"), "halted"), (("scale", "once", "2"), "resized")):
        refused = begun.voda(*command)
        assert refused.returncode != 0
        said = " ".join(refused.stderr.split())
        assert f"is not restartable, and its program has begun: it cannot be {done}" in said
    assert begun.voda("scale", "once", "--priority", "3").returncode == 0
    assert begun.voda("delete", "once", "--wait").returncode == 0
    assert ran(begun) == ["begun"]


def test_drain_waits_for_the_job(begun: Home, tmp_path: Path) -> None:
    served = begun._running[-1]
    [node] = [each["name"] for each in served.get("/api/v1/nodes")["items"]]
    drained = begun.voda("nodes", "drain", node)
    assert drained.returncode == 0
    said = " ".join(drained.stdout.split())
    assert f"{node} is being drained: it waits until once, not to be stopped, has ended" in said
    other = a_manifest(tmp_path, "other", "exit 0")
    assert begun.voda("submit", other).returncode == 0
    wait_until(lambda: "drained" in str(served.get("/api/v1/jobs/other")["message"]), lambda: "a plan without the node")
    assert phase(served, "once") == "Running"
    assert ran(begun) == ["begun"]


def test_job_outlives_voda_and_an_end_that_halts_all_others(begun: Home) -> None:
    begun._running[-1].stop()
    served = begun.up("--halt-on-exit")
    wait_until(lambda: phase(served, "once") == "Running", lambda: "the job to be taken over")
    served.stop()
    served = begun.up()
    wait_until(lambda: phase(served, "once") == "Running", lambda: "the job to be taken over again")
    assert ran(begun) == ["begun"]


def test_job_whose_program_others_end_has_failed(begun: Home) -> None:
    served = begun._running[-1]
    for pid, _ in marked_processes(begun.folder / "jobs" / "once"):
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: phase(served, "once") == "Failed", lambda: "the job to fail")
    assert "not restartable" in str(served.get("/api/v1/jobs/once")["message"])
    assert ran(begun) == ["begun"]


def test_job_that_fails_by_itself_is_not_tried_again(home: Home, tmp_path: Path) -> None:
    served = home.up()
    path = a_manifest(tmp_path, "once", "echo begun >> $VODA_JOB_DIR/ran.txt; exit 3", restartable="never")
    assert home.voda("submit", path).returncode == 0
    wait_until(lambda: phase(served, "once") == "Failed", lambda: "the job to fail")
    assert "exit code 3" in str(served.get("/api/v1/jobs/once")["message"])
    assert ran(home) == ["begun"]


def test_restart_policy_that_says_the_contrary_is_refused(home: Home, tmp_path: Path) -> None:
    home.up()
    path = Path(a_manifest(tmp_path, "once", "true", restartable="never"))
    path.write_text(path.read_text().replace("restartPolicy: Never", "restartPolicy: OnFailure"))
    refused = home.voda("submit", str(path))
    assert refused.returncode != 0
    said = " ".join(refused.stderr.split())
    assert "restartPolicy: expected Never, as voda.dev/restartable is never, got 'OnFailure'" in said


def test_limit_of_tries_that_does_not_count_is_named_at_the_submit(home: Home, tmp_path: Path) -> None:
    served = home.up()
    launcher = {"containers": [{"name": "l", "command": ["sh", "-c", "echo begun >> $VODA_JOB_DIR/ran.txt; exit 3"]}]}
    worker = {"containers": [{"name": "w", "command": ["sleep", "inf"]}]}
    roles = {
        name: {"replicas": 1, "restartPolicy": "Never", "template": {"spec": spec}}
        for name, spec in (("Launcher", launcher), ("Worker", worker))
    }
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "three-more"},
        "spec": {"runPolicy": {"backoffLimit": 3}, "mpiReplicaSpecs": roles},
    }
    path = tmp_path / "three-more.yaml"
    path.write_text(yaml.safe_dump(manifest))
    submitted = home.voda("submit", str(path))
    said = " ".join((submitted.stdout + submitted.stderr).split())
    assert "spec.runPolicy.backoffLimit" in said
    assert "not used: with restartPolicy Never, there is one try" in said
    wait_until(lambda: phase(served, "three-more") == "Failed", lambda: "the job to fail")
    assert ran(home, "three-more") == ["begun"]
