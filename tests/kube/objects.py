"""Nodes, pods and jobs as users and kubelets write them, small and complete.

Rule: what a test does not ask for is as in an ordinary GPU cluster.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.kube.client import Object, now_text

POOL = "vodascheduler/accelerator"
MANAGED = "voda.dev/managed"
GPU = "nvidia.com/gpu"


def a_node(name: str, gpus: int = 8, pool: str = "v100", **changes: Any) -> Object:
    """Return a node that is ready.

    Args:
        name: of the node.
        gpus: allocatable; 0 = it has none.
        pool: the label's value; empty = it has no such label.
        changes: `cpu` ("64") and `memory` ("256Gi") allocatable, `resource` by which the GPUs go (nvidia.com/gpu),
            `labels`, `taints` as {key, value, effect}, `amounts` of other resources.
    """
    own = {"kubernetes.io/hostname": name, **({POOL: pool} if pool else {}), **changes.get("labels", {})}
    amounts = {
        "cpu": changes.get("cpu", "64"),
        "memory": changes.get("memory", "256Gi"),
        "pods": "250",
        "ephemeral-storage": "1Ti",
    }
    amounts |= {changes.get("resource", GPU): str(gpus)} if gpus else {}
    amounts |= changes.get("amounts", {})
    return {
        "metadata": {"name": name, "labels": own},
        "spec": {"taints": [dict(taint) for taint in changes.get("taints", ())]},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready(True)]},
    }


def ready(is_so: bool) -> Object:
    """Return the Ready condition of a node."""
    now = now_text()
    reason = "KubeletReady" if is_so else "KubeletNotReady"
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": "Ready", "status": str(is_so), "reason": reason, **times}


def a_pod(name: str, namespace: str, *, gpus: int = 0, node: str = "", **changes: Any) -> Object:
    """Return a pod of somebody else's: `cpu` and `memory` requested, `labels`, `annotations`, `spec` fields."""
    limits: Object = {GPU: str(gpus)} if gpus else {}
    requests: Object = {**{key: changes[key] for key in ("cpu", "memory") if key in changes}, **limits}
    container = {"name": "main", "image": "work", "resources": {"requests": requests, "limits": limits}}
    spec: Object = {"containers": [container], **changes.get("spec", {})}
    if node:
        spec["nodeName"] = node
    metadata = {key: changes[key] for key in ("labels", "annotations") if key in changes}
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec}


def an_mpijob(name: str, namespace: str, workers: int = 2, **changes: Any) -> Object:
    """Return an MPIJob v2beta1 that voda shall run.

    Args:
        name: of the job.
        namespace: of the job.
        workers: replicas.
        changes: `gpus` of a worker (1), `least` and `most` replicas, `pool`, `priority`, `managed` (True),
            `suspend` (left out), `env` of both roles, `labels`, `annotations`, `resources` of a worker's container
            (requests and limits beside the GPUs), `worker_spec` and `launcher_spec` fields of the pod templates,
            `worker_notes` and `launcher_notes` annotations of them, `policy` fields of runPolicy, `spec` fields.
    """
    launcher = _template("launcher", {}, changes, ["mpirun", "train.py"])
    worker = _template("worker", _resources(changes), changes, [])
    specs = {"Launcher": {"replicas": 1, "template": launcher}, "Worker": {"replicas": workers, "template": worker}}
    spec = {"slotsPerWorker": 1, "mpiReplicaSpecs": specs, **_policy(changes), **changes.get("spec", {})}
    return {**_head("MPIJob", "kubeflow.org/v2beta1", name, namespace, changes), "spec": spec}


def an_mpijob_v1(name: str, namespace: str, workers: int = 2, **changes: Any) -> Object:
    """Return an MPIJob v1; see `an_mpijob`."""
    return {**an_mpijob(name, namespace, workers, **changes), "apiVersion": "kubeflow.org/v1"}


def a_pytorchjob(name: str, namespace: str, workers: int = 2, **changes: Any) -> Object:
    """Return an elastic PyTorchJob without a Master; see `an_mpijob`, and `masters`, `restart`, `elastic` fields."""
    worker = _template("worker", _resources(changes), changes, ["torchrun", "train.py"])
    worker["spec"]["containers"][0]["name"] = "pytorch"
    restart = changes.get("restart", "OnFailure")
    specs = {"Worker": {"replicas": workers, "restartPolicy": restart, "template": worker}}
    if changes.get("masters"):
        specs["Master"] = {"replicas": 1, "restartPolicy": restart, "template": worker}
    elastic = {"minReplicas": changes.get("least", 1), "maxReplicas": changes.get("most", 8), "rdzvBackend": "c10d"}
    spec = {"elasticPolicy": {**elastic, **changes.get("elastic", {})}, "pytorchReplicaSpecs": specs}
    spec |= {**_policy(changes), **changes.get("spec", {})}
    return {**_head("PyTorchJob", "kubeflow.org/v1", name, namespace, changes), "spec": spec}


def an_indexed_job(name: str, namespace: str, workers: int = 2, **changes: Any) -> Object:
    """Return an Indexed Job whose pods are not restarted; see `an_mpijob`. A lost pod is no failure of it."""
    template = _template("worker", _resources(changes), changes, ["python", "train.py"])
    template["spec"].setdefault("restartPolicy", "Never")
    disruption = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    suspend = {"suspend": changes["suspend"]} if "suspend" in changes else {}
    spec = {"completionMode": "Indexed", "parallelism": workers, "completions": workers, "template": template}
    spec |= {"podFailurePolicy": {"rules": [disruption]}, **suspend, **changes.get("spec", {})}
    return {**_head("Job", "batch/v1", name, namespace, changes), "spec": spec}


def a_jobset(name: str, namespace: str, workers: int = 2, **changes: Any) -> Object:
    """Return a JobSet of one Indexed Job; see `an_indexed_job`, and `job` fields of the Job."""
    spec = {**an_indexed_job("", "", workers, **{**changes, "spec": changes.get("job", {})})["spec"]}
    own = {"suspend": spec.pop("suspend")} if "suspend" in spec else {}
    own |= {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": spec}}], **changes.get("spec", {})}
    return {**_head("JobSet", "jobset.x-k8s.io/v1alpha2", name, namespace, changes), "spec": own}


def a_trainjob(name: str, namespace: str, workers: int = 2, **changes: Any) -> Object:
    """Return a TrainJob of the runtime `torch`; its JobSet gets the label and the annotations. See `a_jobset`."""
    head = _head("TrainJob", "trainer.kubeflow.org/v1alpha1", name, namespace, changes)
    said = {part: head["metadata"].pop(part) for part in ("labels", "annotations")}
    trainer = {
        "numNodes": workers,
        "image": "train",
        "command": ["train"],
        "resourcesPerNode": {"limits": {GPU: str(changes.get("gpus", 1))}},
    }
    spec = {
        "runtimeRef": {"kind": "TrainingRuntime", "name": changes.get("runtime", "torch")},
        "suspend": changes.get("suspend", True),
        "trainer": {**trainer, **changes.get("trainer", {})},
        **said,
    }
    return {**head, "spec": spec}


def a_training_runtime(name: str, namespace: str, *jobs: str, job: Mapping[str, Any] | None = None) -> Object:
    """Return a TrainingRuntime of torch with these replicated jobs, the first of which trains; `job` fields of each."""
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    template = {"spec": {"containers": [{"name": "node", "image": "torch"}]}}
    made = [
        {
            "name": each,
            "template": {"metadata": {} if number else step, "spec": {"template": template, **(job or {})}},
        }
        for number, each in enumerate(jobs or ("node",))
    ]
    spec = {
        "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
        "template": {"spec": {"replicatedJobs": made}},
    }
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": metadata,
        "spec": spec,
    }


def _head(kind: str, version: str, name: str, namespace: str, changes: Mapping[str, Any]) -> Object:
    notes = {f"voda.dev/{word}": str(changes[key]) for word, key in _NOTES if key in changes}
    labels = {**({MANAGED: "true"} if changes.get("managed", True) else {}), **changes.get("labels", {})}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {**metadata, "annotations": {**notes, **changes.get("annotations", {})}},
    }


_NOTES = (("min-replicas", "least"), ("max-replicas", "most"), ("pool", "pool"), ("priority", "priority"))


def _policy(changes: Mapping[str, Any]) -> Object:
    suspend = {"suspend": changes["suspend"]} if "suspend" in changes else {}
    policy = {**suspend, **changes.get("policy", {})}
    return {"runPolicy": policy} if policy else {}


def _resources(changes: Mapping[str, Any]) -> Object:
    asked, gpus = changes.get("resources", {}), changes.get("gpus", 1)
    return {**asked, "limits": {**asked.get("limits", {}), **({GPU: str(gpus)} if gpus else {})}}


def _template(role: str, resources: Object, changes: Mapping[str, Any], command: Sequence[str]) -> Object:
    env = [{"name": key, "value": value} for key, value in changes.get("env", {}).items()]
    container: Object = {"name": role, "image": "train", "env": env, "resources": resources}
    container |= {"command": list(command)} if command else {}
    template: Object = {"spec": {"containers": [container], **changes.get(f"{role}_spec", {})}}
    notes = changes.get(f"{role}_notes", {})
    return {**template, **({"metadata": {"annotations": dict(notes)}} if notes else {})}
