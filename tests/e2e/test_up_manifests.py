"""Manifests as people have them, on one machine: what `voda submit` takes of them, and what it says of the rest."""

from pathlib import Path

import pytest
import yaml

from tests.e2e.test_up import Home, home
from tests.e2e.test_up_restartable import a_manifest

__all__ = ["home"]
pytestmark = pytest.mark.slow
# As `helm template` prints it; all have one name.
RENDERED = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: ft}
data: {train.py: "print(1)"}
---
apiVersion: v1
kind: Service
metadata: {name: ft}
spec: {clusterIP: None}
---
apiVersion: batch/v1
kind: Job
metadata: {name: ft}
spec:
  completionMode: Indexed
  template: {spec: {restartPolicy: Never, containers: [{name: t, command: [echo, trained]}]}}
"""


def test_job_of_a_stream_runs_and_what_belongs_to_it_is_named_once(home: Home, tmp_path: Path) -> None:
    home.up()
    path = tmp_path / "rendered.yaml"
    path.write_text(RENDERED)
    told = home.voda("submit", str(path), "--watch")
    assert told.returncode == 0, told.stderr
    assert " ".join(told.stderr.split()).count("left out, for voda makes jobs alone") == 1
    assert "ConfigMap ft, Service ft" in " ".join(told.stderr.split())
    assert home.voda("logs", "ft").stdout == "trained\n"


@pytest.mark.parametrize("option", ["--nnodes=3", "--standalone"])
def test_option_of_torchrun_that_contradicts_the_bounds_is_named_at_the_submit(
    home: Home, tmp_path: Path, option: str
) -> None:
    home.up("--halt-on-exit")
    path = Path(a_manifest(tmp_path, "fixed", "", workers=2))
    manifest = yaml.safe_load(path.read_text())
    manifest["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 6}
    [container] = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["command"] = ["torchrun", option, "train.py"]
    path.write_text(yaml.safe_dump(manifest))
    submitted = home.voda("submit", str(path))
    assert submitted.returncode == 0, submitted.stderr
    said = " ".join((submitted.stdout + submitted.stderr).split())
    assert f"torchrun's {option} goes before what voda tells it, and does not suit 1 to 6 workers" in said
