"""Manifests of jobs for tests, small and complete."""

from collections.abc import Mapping, Sequence
from typing import Any


def an_mpi_job(**changes: Any) -> dict[str, Any]:
    """Return an MPIJob: `env` of the launcher, `annotations`, `worker` and `launcher` containers, `spec` fields."""
    env = [{"name": name, "value": value} for name, value in changes.get("env", {}).items()]
    launcher = {"name": "launcher", "image": "train", "command": ["mpirun"], "args": ["train.py"], "env": env}
    worker = {"name": "worker", "image": "train"}
    return {
        "apiVersion": changes.get("api_version", "kubeflow.org/v2beta1"),
        "kind": "MPIJob",
        "metadata": {"name": "digits", "annotations": changes.get("annotations", {}), **changes.get("metadata", {})},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": _replica({**launcher, **changes.get("launcher", {})}, 1),
                "Worker": _replica({**worker, **changes.get("worker", {})}, changes.get("replicas", 2)),
            },
            **changes.get("spec", {}),
        },
    }


def a_torch_job(**changes: Any) -> dict[str, Any]:
    """Return a PyTorchJob: `env` of its containers, `replicas` and `masters` (0 = no such role), `spec` fields."""
    env = [{"name": name, "value": value} for name, value in changes.get("env", {}).items()]
    container = {"name": "pytorch", "image": "train", "command": ["torchrun"], "args": ["train.py"], "env": env}
    container |= changes.get("container", {})
    counts = {"Master": changes.get("masters", 0), "Worker": changes.get("replicas", 2)}
    roles = {role: _replica(dict(container), replicas) for role, replicas in counts.items() if replicas}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "digits", "annotations": changes.get("annotations", {})},
        "spec": {"pytorchReplicaSpecs": roles, **changes.get("spec", {})},
    }


def an_indexed_job(
    replicas: int = 2, *, env: Sequence[dict[str, str]] = (), annotations: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a Job of batch/v1 whose replicas torchrun starts; `spec` fields win."""
    resources = {"limits": {"nvidia.com/gpu": 1}}
    words = {"command": ["torchrun", "train.py"], "env": list(env)}
    container = {"name": "main", "image": "train", **words, "resources": resources}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    size = {"completionMode": "Indexed", "completions": replicas, "parallelism": replicas}
    metadata = {"name": "digits", "annotations": dict(annotations or {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {**size, "template": template, **spec},
    }


def a_jobset(replicas: int = 2, **job: Any) -> dict[str, Any]:
    """Return a JobSet of one replicated job; see `an_indexed_job`, whose arguments are the Job's."""
    made = an_indexed_job(replicas, **job)
    spec = {"replicatedJobs": [{"name": "node", "template": {"spec": made["spec"]}}]}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": made["metadata"], "spec": spec}


def _replica(container: dict[str, Any], replicas: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"template": {"spec": {"containers": [container]}}}
    if replicas is not None:
        found["replicas"] = replicas
    return found
