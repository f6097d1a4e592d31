"""The objects that training-operator makes for one MPIJob v1.

Rule: pure; names, labels and file contents are those of the operator.
"""

from collections.abc import Sequence
from copy import deepcopy

from tests.kube.client import Object
from tests.kube.operators.base import (
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    replicas_of,
)

_KUBEXEC = """#!/bin/sh
set -x
POD_NAME=$1
shift
/opt/kube/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"
"""
_GROUP = "rbac.authorization.k8s.io"


def worker_name(job: Object, index: int) -> str:
    """Return the name of a worker."""
    return f"{job['metadata']['name']}-worker-{index}"


def config_map(job: Object, running: Sequence[str]) -> Object:
    """Return hostfile, discover_hosts.sh and kubexec.sh; hosts are pods' names here."""
    name, slots = job["metadata"]["name"], job["spec"].get("slotsPerWorker", 1)
    first = [f"{name}-launcher"] if _launcher_works(job) else []
    wanted = [worker_name(job, index) for index in range(replicas_of(job, "mpiReplicaSpecs", "Worker"))]
    script = [f"echo {pod}:{slots}" for pod in [*first, *sorted(running)]]
    data = {
        "hostfile": "".join(f"{pod} slots={slots}\n" for pod in [*first, *wanted]),
        "kubexec.sh": _KUBEXEC,
        "discover_hosts.sh": "\n".join(["#!/bin/sh", *script]),
    }
    return {"metadata": {"name": f"{name}-config", "labels": {"app": name}}, "data": data}


def service_account(job: Object) -> Object:
    """Return the launcher's ServiceAccount."""
    return {"metadata": _launchers(job)}


def role(job: Object) -> Object:
    """Return what the launcher may do: look at pods, and run programs in its workers."""
    wanted = replicas_of(job, "mpiReplicaSpecs", "Worker")
    rules: list[Object] = [
        {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]},
        {
            "verbs": ["create"],
            "apiGroups": [""],
            "resources": ["pods/exec"],
            "resourceNames": [worker_name(job, index) for index in range(wanted)],
        },
    ]
    return {"metadata": _launchers(job), "rules": rules}


def role_binding(job: Object) -> Object:
    """Return what gives the launcher its Role."""
    name = _launchers(job)["name"]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": job["metadata"]["namespace"]}
    reference = {"apiGroup": _GROUP, "kind": "Role", "name": name}
    return {"metadata": _launchers(job), "subjects": [subject], "roleRef": reference}


def worker(job: Object, index: int) -> Object:
    """Return one worker's pod."""
    pod = _pod(job, "Worker", {REPLICA_TYPE: "worker", REPLICA_INDEX: str(index)})
    pod["metadata"]["name"] = worker_name(job, index)
    container = pod["spec"]["containers"][0]
    if not container.get("command"):
        container["command"] = ["sleep"]
        container["args"] = ["365d"]
    return pod


def launcher(job: Object) -> Object:
    """Return the launcher's pod."""
    name = job["metadata"]["name"]
    pod = _pod(job, "Launcher", {REPLICA_TYPE: "launcher", JOB_ROLE: "master"})
    pod["metadata"]["name"] = f"{name}-launcher"
    container = pod["spec"]["containers"][0]
    environment = {
        "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    }
    container.setdefault("env", []).extend({"name": key, "value": value} for key, value in environment.items())
    container["volumeMounts"] = [
        *container.get("volumeMounts", []),
        {"name": "mpi-job-config", "mountPath": "/etc/mpi"},
    ]
    volume = {"name": "mpi-job-config", "configMap": {"name": f"{name}-config"}}
    pod["spec"]["volumes"] = [*pod["spec"].get("volumes", []), volume]
    # The ServiceAccount is made, but not named here: whether it may be used is no matter of these tests.
    return pod


def _launchers(job: Object) -> Object:
    name = job["metadata"]["name"]
    return {"name": f"{name}-launcher", "labels": {"app": name}}


def _pod(job: Object, role: str, labels: dict[str, str]) -> Object:
    spec = job["spec"]["mpiReplicaSpecs"][role]
    template: Object = deepcopy(spec["template"])
    metadata = template.setdefault("metadata", {})
    own = {OPERATOR_NAME: "mpijob-controller", JOB_NAME: job["metadata"]["name"]}
    metadata["labels"] = {**metadata.get("labels", {}), **own, **labels}
    policy = spec.get("restartPolicy", "Never")
    template["spec"]["restartPolicy"] = "Never" if policy == "ExitCode" else policy
    return template


def _launcher_works(job: Object) -> bool:
    containers = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    limits = [key for each in containers for key in each.get("resources", {}).get("limits", {})]
    return any(key.endswith(".com/gpu") or "gpu" in key for key in limits)
