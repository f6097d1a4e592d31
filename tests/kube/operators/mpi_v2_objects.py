"""The objects that mpi-operator makes for one MPIJob v2beta1, and what it accepts.

Rule: pure; names, labels and file contents are those of the operator, but the SSH key opens nothing.
"""

import base64
import re
from collections.abc import Sequence
from copy import deepcopy

from tests.kube.client import Object
from tests.kube.operators.base import (
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    is_suspended,
    replicas_of,
    run_policy,
)

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_MPI_ENVIRONMENT = {
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
}


def problem_of(job: Object) -> str:
    """Return what the operator finds wrong with a job; empty where nothing is."""
    specs = job["spec"].get("mpiReplicaSpecs", {})
    launcher, worker = specs.get("Launcher"), specs.get("Worker")
    if launcher is None or launcher.get("replicas", 1) != 1:
        return "spec.mpiReplicaSpecs[Launcher]: must have one replica"
    if worker is not None and worker.get("replicas", 0) < 1:
        return "spec.mpiReplicaSpecs[Worker].replicas: must be greater than or equal to 1"
    for role, spec in specs.items():
        if spec.get("restartPolicy", "Never") not in ("Never", "OnFailure"):
            return f"spec.mpiReplicaSpecs[{role}].restartPolicy: supported values: Never, OnFailure"
        if not spec["template"].get("spec", {}).get("containers"):
            return f"spec.mpiReplicaSpecs[{role}].template.spec.containers: must define at least one container"
    last = worker_name(job, max(0, replicas_of(job, "mpiReplicaSpecs", "Worker") - 1))
    return "" if _DNS_1035.fullmatch(last) else f"metadata.name: {last} is no DNS label"


def worker_name(job: Object, index: int) -> str:
    """Return the name of a worker."""
    return f"{job['metadata']['name']}-worker-{index}"


def service(job: Object) -> Object:
    """Return the headless Service of a job's pods."""
    name = job["metadata"]["name"]
    selector = {OPERATOR_NAME: "mpi-operator", JOB_NAME: name}
    spec = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": _launcher_works(job)}
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def config_map(job: Object, running: Sequence[str]) -> Object:
    """Return hostfile and discover_hosts.sh: all that are wanted, and all that run."""
    name, wanted = job["metadata"]["name"], replicas_of(job, "mpiReplicaSpecs", "Worker")
    slots = job["spec"].get("slotsPerWorker", 1)
    first = [f"{name}-launcher"] if _launcher_works(job) else []
    hosts = [_host(job, each) for each in [*first, *(worker_name(job, index) for index in range(wanted))]]
    is_open_mpi = job["spec"].get("mpiImplementation", "OpenMPI") == "OpenMPI"
    lines = [f"{host} slots={slots}" if is_open_mpi else f"{host}:{slots}" for host in hosts]
    script = [f"echo {_host(job, each)}" for each in [*first, *sorted(running)]]
    data = {
        "hostfile": "".join(f"{line}\n" for line in lines),
        "discover_hosts.sh": "".join(f"{line}\n" for line in ["#!/bin/sh", *script]),
    }
    return {"metadata": {"name": f"{name}-config", "labels": {"app": name}}, "data": data}


def secret(job: Object) -> Object:
    """Return the Secret by which launcher and workers would let each other in."""
    name = job["metadata"]["name"]
    keys = {each: base64.b64encode(f"of {name}".encode()).decode() for each in ("ssh-privatekey", "ssh-publickey")}
    metadata = {"name": f"{name}-ssh", "labels": {"app": name}}
    return {"metadata": metadata, "type": "kubernetes.io/ssh-auth", "data": keys}


def worker(job: Object, index: int) -> Object:
    """Return one worker's pod."""
    name = worker_name(job, index)
    label = str(index + 1 if _launcher_works(job) else index)
    pod = _pod(job, "Worker", "Never", {JOB_ROLE: "worker", REPLICA_INDEX: label})
    pod["metadata"]["name"] = name
    pod["spec"] |= {"hostname": name, "subdomain": job["metadata"]["name"]}
    container = pod["spec"]["containers"][0]
    if not container.get("command") and not container.get("args"):
        container["command"] = ["/usr/sbin/sshd", "-De"]
    container.setdefault("env", []).append({"name": "K_MPI_JOB_ROLE", "value": "worker"})
    _mount(job, pod, with_config=False)
    return pod


def launcher(job: Object) -> Object:
    """Return the Job of the launcher; of a suspended job, one that makes no pod yet."""
    name, policy = job["metadata"]["name"], run_policy(job)
    first: dict[str, str] = {REPLICA_INDEX: "0"} if _launcher_works(job) else {}
    pod = _pod(job, "Launcher", "OnFailure", {JOB_ROLE: "launcher", **first})
    pod["spec"] |= {"hostname": f"{name}-launcher", "subdomain": name}
    environment = pod["spec"]["containers"][0].setdefault("env", [])
    environment += [{"name": key, "value": value} for key, value in _MPI_ENVIRONMENT.items()]
    if not _launcher_works(job):
        environment += [{"name": each} for each in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")]
    _mount(job, pod, with_config=True)
    limits: Object = {
        key: policy[key]
        for key in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
        if key in policy
    }
    spec = {**limits, **paused(is_suspended(job)), "completions": 1, "template": pod}
    return {"metadata": {"name": f"{name}-launcher", "labels": {"app": name}}, "spec": spec}


def paused(is_so: bool) -> Object:
    """Return the fields of a Job's spec by which it has no pods, or has them."""
    return {"suspend": is_so}


def is_paused(launcher: Object) -> bool:
    """Say whether a Job has been told to have no pods."""
    return bool(launcher["spec"].get("suspend"))


def _pod(job: Object, role: str, restart: str, labels: dict[str, str]) -> Object:
    spec = job["spec"]["mpiReplicaSpecs"][role]
    template: Object = deepcopy(spec["template"])
    metadata = template.setdefault("metadata", {})
    own = {OPERATOR_NAME: "mpi-operator", JOB_NAME: job["metadata"]["name"]}
    metadata["labels"] = {**metadata.get("labels", {}), **own, **labels}
    template["spec"]["restartPolicy"] = spec.get("restartPolicy", restart)
    return template


def _mount(job: Object, pod: Object, *, with_config: bool) -> None:
    name, container = job["metadata"]["name"], pod["spec"]["containers"][0]
    path = job["spec"].get("sshAuthMountPath", "/root/.ssh")
    volumes: list[Object] = [{"name": "ssh-auth", "secret": {"secretName": f"{name}-ssh", "defaultMode": 0o600}}]
    mounts = [{"name": "ssh-auth", "mountPath": path}]
    if with_config:
        volumes.append({"name": "mpi-job-config", "configMap": {"name": f"{name}-config"}})
        mounts.append({"name": "mpi-job-config", "mountPath": "/etc/mpi"})
    pod["spec"]["volumes"] = [*pod["spec"].get("volumes", []), *volumes]
    container["volumeMounts"] = [*container.get("volumeMounts", []), *mounts]


def _host(job: Object, pod: str) -> str:
    return f"{pod}.{job['metadata']['name']}.{job['metadata']['namespace']}.svc"


def _launcher_works(job: Object) -> bool:
    return bool(job["spec"].get("runLauncherAsWorker"))
