"""Kubelets and device plugins that restart: their nodes say no GPUs for seconds, while all that runs there runs on.

`RESTARTS=20` restarts each of them so often; without it, three times.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from tests.kube.node.cluster import GPUS, NODES, NodeCluster
from tests.kube.node.installation import Installation
from tests.kube.objects import an_indexed_job
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
_RESTARTS = int(os.environ.get("RESTARTS", "3"))  # noqa: TID251 - tests have no voda.config
_AWAY_S: Mapping[str, float] = {"kubelet": 0.5, "gpu-plugin": 8.0}
"""Long enough for the node to say no GPUs, most times; a plugin that is back at once is not noticed."""
_ALL = len(NODES) * GPUS


def test_workers_when_kubelets_and_device_plugins_restart_are_not_touched(installation: Installation) -> None:
    cluster = installation.cluster
    job = an_indexed_job("counts", "default", 1, least=1, most=_ALL, suspend=True)
    count = ["sh", "-c", "n=0; while sleep 1; do n=$((n + 1)); echo $n; done"]
    job["spec"]["template"]["spec"]["containers"][0] |= {"image": "localhost/busybox:1", "command": count}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    try:
        wait_until(lambda: len(running(installation)) == _ALL, lambda: str(installation.pods("counts")), within_s=120)
        touched, lacked = Counter[str](), Counter[str]()
        for turn in range(_RESTARTS):
            for program, away_s in _AWAY_S.items():
                before = running(installation)
                lacked[program] += restart(cluster, NODES[turn % len(NODES)], program, away_s)
                touched[program] += len(before.keys() - running(installation).keys())
        sys.stdout.write(f"\n{_RESTARTS} restarts each: no GPUs for a moment {dict(lacked)}, touched {dict(touched)}\n")
        assert sum(lacked.values())
        assert not sum(touched.values())
    finally:
        cluster.kubectl("delete", "job", "counts")


def restart(cluster: NodeCluster, node: str, program: str, away_s: float) -> bool:
    """Stop a program of a node and start it again; return, once the node is as before, whether it said no GPUs."""
    said = set[str]()

    def is_whole() -> bool:
        status = json.loads(cluster.kubectl("get", "node", node, "-o", "json"))["status"]
        said.add(status["allocatable"].get("nvidia.com/gpu", "0"))
        is_ready = {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
        return bool(is_ready and status["allocatable"].get("nvidia.com/gpu") == str(GPUS))

    cluster.stop(node, program)
    back_at = time.perf_counter() + away_s
    wait_until(lambda: (is_whole(), time.perf_counter() > back_at)[1], lambda: f"{program} of {node} is away")
    cluster.start_again(node, program)
    # Before that its API object may say what the program said last.
    settled_at = time.perf_counter() + 5.0
    wait_until(lambda: is_whole() and time.perf_counter() > settled_at, lambda: f"{node} has said {said}")
    return "0" in said


def running(voda: Installation) -> Mapping[str, Any]:
    """Return the pods of the job that run, by uid."""
    return {pod["metadata"]["uid"]: pod for pod in voda.pods("counts") if pod["status"]["phase"] == "Running"}
