"""Workers that others evict on real kubelets, whose program saves and exits 0: they have not finished, and run again.

A Job takes such a worker for a success of its index, and one of index 0 for its own.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kube.node.cluster import GPUS, NODES
from tests.kube.node.installation import Installation
from tests.kube.objects import an_indexed_job
from tests.waiting import wait_until

ALL = range(len(NODES) * GPUS)
_INDEX = "batch.kubernetes.io/job-completion-index"
SAVES = """
kept=/kept/$JOB_COMPLETION_INDEX
step=$(cat $kept || echo 0)
echo from step $step
trap 'sleep SECONDS; echo $step > $kept; exit 0' TERM
until [ -e /tmp/end ]; do step=$((step + 1)); sleep 0.2; done
"""


@pytest.fixture
def voda(installation: Installation) -> Iterator[Installation]:
    with installation.forwarded():
        yield installation
        installation.cluster.kubectl("delete", "job", "saves", "--ignore-not-found")


@pytest.mark.parametrize("saves_for_s", [0, 2])
@pytest.mark.parametrize("index", [0, 2])
def test_worker_that_is_evicted_saves_and_exits_0_goes_on_and_the_job_ends_with_its_program(
    voda: Installation, tmp_path: Path, index: int, saves_for_s: int
) -> None:
    tmp_path.chmod(0o777)
    job = job_that_saves(tmp_path, saves_for_s)
    voda.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    wait_until(lambda: running(voda).keys() == set(ALL), lambda: tell(voda))
    evicted = running(voda)[index]["metadata"]
    evict(voda, evicted["name"])

    def runs_again() -> bool:
        now = running(voda)
        return now.keys() == set(ALL) and bool(now[index]["metadata"]["uid"] != evicted["uid"])

    wait_until(runs_again, lambda: tell(voda))
    # It had ended by itself, with 0: killed ones save nothing.
    saved = int((tmp_path / str(index)).read_text("utf-8"))
    assert saved > 0
    assert f"from step {saved}\n" in voda.cluster.kubectl("logs", running(voda)[index]["metadata"]["name"])
    assert voda.status("saves")["phase"] == "Running"
    exits = voda.voda("events", "--job", "saves", "--type", "worker.exited", "-o", "json").splitlines()
    assert "finished" not in {json.loads(line)["data"].get("cause") for line in exits}
    voda.voda("exec", "saves", "--yes", "--", "touch", "/tmp/end")
    wait_until(lambda: "Completed" in voda.voda("get", "saves"), lambda: tell(voda))


def job_that_saves(kept: Path, for_s: int) -> dict[str, Any]:
    """Return an elastic Job whose workers keep their steps in a folder of this machine, and exit 0 on SIGTERM."""
    success = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}, "podReplacementPolicy": "Failed"}
    job = an_indexed_job("saves", "default", 1, least=1, most=len(ALL), suspend=True, spec=success)
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "kept", "hostPath": {"path": str(kept)}}]
    pod["containers"][0] |= {
        "image": "localhost/busybox:1",
        "command": ["sh", "-c", SAVES.replace("SECONDS", str(for_s))],
        "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
    }
    return job


def evict(voda: Installation, pod: str) -> None:
    """Evict a pod by the API that `kubectl drain` uses."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    voda.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def running(voda: Installation) -> Mapping[int, dict[str, Any]]:
    """Return the pods of the job that run and are not being deleted, by index."""
    pods = [pod for pod in voda.pods("saves") if pod["status"]["phase"] == "Running"]
    return {int(pod["metadata"]["annotations"][_INDEX]): pod for pod in pods}


def tell(voda: Installation) -> str:
    return voda.voda("explain", "saves") + voda.cluster.kubectl("get", "job,pods", "-o", "wide")
