"""The jobs that clients submit: small programs that count, and go on counting where they were when started again.

Rule: a replica that finds its own lock taken says so in a file that the checker looks for: it runs twice at a time.
"""

from random import Random
from typing import Any

_COUNTING = """
cd "$VODA_JOB_DIR" || exit 9
me=${{VODA_REPLICA##*/}}
exec 9>"running-$me"
flock -n 9 || echo "process $$$$ found $me at work" >> "doubled-$me"
n=$(cat "count-$me" 2>/dev/null || echo 0)
while [ "$n" -lt {most} ]; do sleep 0.5 9>&-; n=$((n + 1)); echo "$n" > "count-$me"; done
exit {status}
"""
_BROKEN = 0.05
"""Share of the jobs that fail in the end."""


def a_job(name: str, chance: Random) -> dict[str, Any]:
    """Return the manifest of a job of 1 to 3 workers that runs for some seconds."""
    status = 3 if chance.random() < _BROKEN else 0
    least, most = chance.choice(((1, 1), (1, 2), (1, 3), (2, 2), (2, 3)))
    make = _mpi if chance.random() < 0.7 else _torch
    return {
        **make(chance.randint(1, 8), status, least),
        "metadata": {
            "name": name,
            "annotations": {
                "voda.dev/min-replicas": str(least),
                "voda.dev/max-replicas": str(most),
                "voda.dev/priority": str(chance.randint(0, 9)),
            },
        },
    }


def _mpi(ticks: int, status: int, workers: int) -> dict[str, Any]:
    roles = {"Launcher": _replicas(1, _script(ticks, status)), "Worker": _replicas(workers)}
    spec = {"mpiReplicaSpecs": roles, "runPolicy": {"backoffLimit": 1}}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "spec": spec}


def _torch(ticks: int, status: int, workers: int) -> dict[str, Any]:
    roles = {"Worker": _replicas(workers, _script(ticks, status))}
    spec = {"pytorchReplicaSpecs": roles, "runPolicy": {"backoffLimit": 1}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": spec}


def _script(ticks: int, status: int) -> str:
    return _COUNTING.format(most=ticks, status=status)


def _replicas(count: int, script: str = "") -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "none"}
    if script:
        container["command"] = ["/bin/sh", "-c", script]
    return {"replicas": count, "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 2}}}
