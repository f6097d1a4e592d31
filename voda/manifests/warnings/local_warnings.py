"""What of a manifest a cluster of plain processes cannot honour: there are no images, mounts or pods on a machine.

Rule: exact paths, one sentence each; only what the manifest really says is named.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from voda.domain.errors import InvalidField
from voda.manifests.parsed import Omission
from voda.manifests.programs import known_value, main_container
from voda.manifests.read.schema import Container, MPIJob, Shape, shape_of
from voda.manifests.resources import is_gpu_count, is_gpu_share

_ONE_MACHINE = "does not apply: every process runs on this machine"
_NO_IMAGES = "not used: there are no images here"
_NO_API = "not used: there is no Kubernetes API here"
_NO_MOUNTS = "not mounted: programs see the files of this machine"
_NO_PROBES = "not probed: a process counts as healthy while it runs"
_OWN_NETWORK = "not applied: processes use the network of this machine"
_OWN_USER = "not applied: processes run as the user who runs voda"
_OF_PODS = {
    "initContainers": "not run: prepare on this machine what they would prepare",
    "volumes": _NO_MOUNTS,
    "affinity": _ONE_MACHINE,
    "tolerations": _ONE_MACHINE,
    "topologySpreadConstraints": _ONE_MACHINE,
    "nodeName": _ONE_MACHINE,
    "schedulerName": _ONE_MACHINE,
    "schedulingGates": _ONE_MACHINE,
    "runtimeClassName": _NO_IMAGES,
    "imagePullSecrets": _NO_IMAGES,
    "serviceAccountName": _NO_API,
    "serviceAccount": _NO_API,
    "securityContext": _OWN_USER,
    "hostAliases": _OWN_NETWORK,
    "dnsPolicy": _OWN_NETWORK,
    "dnsConfig": _OWN_NETWORK,
    "resourceClaims": "not claimed: voda hands out whole GPUs",
}
_OF_CONTAINERS = {
    "image": "not used: the command runs with what is installed on this machine",
    "volumeMounts": _NO_MOUNTS,
    "volumeDevices": _NO_MOUNTS,
    "envFrom": "not read: give the variables under env",
    "ports": _OWN_NETWORK,
    "securityContext": _OWN_USER,
    "livenessProbe": _NO_PROBES,
    "readinessProbe": _NO_PROBES,
    "startupProbe": _NO_PROBES,
    "lifecycle": "not run: a process gets SIGTERM when it has to stop",
}
_OF_SPECS = {
    "sshAuthMountPath": "not used: the processes of one machine need no ssh",
    "runLauncherAsWorker": "the launcher is no worker here: all processes run on the workers' slots",
}
_OF_ELASTIC_POLICIES = {"standalone": "not read: the agents of all replicas meet at one port of this machine"}
_OF_POLICIES = {
    "suspend": "not honoured: voda's policy decides when the job runs",
    "schedulingPolicy": "not read: all workers of a plan start together",
    "ttlSecondsAfterFinished": "not read: what has ended stays in the log",
    "managedBy": "not honoured: voda runs the job itself",
}
_ACCELERATOR = "vodascheduler/accelerator"
# What workers run only to be reached by the launcher.
_IDLE_COMMANDS = ("sshd", "sleep")


def on_this_machine(manifest: Mapping[str, Any]) -> tuple[Omission, ...]:
    """Return the fields of an accepted manifest that plain processes cannot honour, besides what `parse` names."""
    job = shape_of(manifest)
    spec = manifest["spec"]
    found = [
        *named(spec, "spec", _OF_SPECS),
        *_implementation(job),
        *named(spec.get("runPolicy"), "spec.runPolicy", _OF_POLICIES),
        *named(spec.get("elasticPolicy"), "spec.elasticPolicy", _OF_ELASTIC_POLICIES),
    ]
    for role in job.roles:
        pod = spec[job.replica_specs.removeprefix("spec.")][role]["template"]["spec"]
        path = f"{job.replica_specs}.{role}.template.spec"
        found += named(pod, path, _OF_PODS)
        found += _selectors(pod, path)
        found += _containers(job, role, pod["containers"], path)
    return tuple(found)


def refuse_unrunnable(manifest: Mapping[str, Any]) -> None:
    """Raise InvalidField where a role that runs here leaves its command to the image."""
    job = shape_of(manifest)
    for role, replica in job.roles.items():
        place, container = main_container(job, replica)
        if _runs_here(job, role) and not (container.command or container.args):
            field = f"{job.replica_specs}.{role}.template.spec.containers[{place}].command"
            raise InvalidField(field, f"{field} is missing: the image's own command cannot be known on this machine")


def _runs_here(job: Shape, role: str) -> bool:
    return not (isinstance(job, MPIJob) and role == "Worker")


def named(where: object, path: str, table: Mapping[str, str]) -> Iterator[Omission]:
    """Yield the fields of a mapping that have something to be told: name -> message."""
    if not isinstance(where, Mapping):
        return
    for name, value in where.items():
        if value and name in table:
            yield Omission(field=f"{path}.{name}", message=table[name])


def _implementation(job: Shape) -> Iterator[Omission]:
    if isinstance(job, MPIJob) and job.spec.mpi_implementation not in (None, "OpenMPI"):
        message = "the list of hosts is written as Open MPI reads it"
        yield Omission(field="spec.mpiImplementation", message=message)


def _selectors(pod: Mapping[str, Any], path: str) -> Iterator[Omission]:
    for name in pod.get("nodeSelector") or ():
        if name != _ACCELERATOR:
            yield Omission(field=f"{path}.nodeSelector[{name[:80]}]", message=_ONE_MACHINE)


def _containers(job: Shape, role: str, raw: list[Mapping[str, Any]], path: str) -> Iterator[Omission]:
    main, container = main_container(job, job.roles[role])
    for place, each in enumerate(raw):
        at = f"{path}.containers[{place}]"
        if place != main:
            yield Omission(field=at, message="not run: one container of a pod runs here, the one that trains")
            continue
        yield from named(each, at, _OF_CONTAINERS)
        yield from _resources(container, at)
        if _runs_here(job, role):
            yield from _variables(container, at)
        else:
            yield from _idle_worker(container, at)


def _resources(container: Container, path: str) -> Iterator[Omission]:
    resources = container.resources
    if resources is None:
        return
    for kind, named in (("limits", resources.limits), ("requests", resources.requests)):
        for name in named or ():
            if not is_gpu_count(name) and not is_gpu_share(name):
                field = f"{path}.resources.{kind}[{name[:80]}]"
                yield Omission(field=field, message="not enforced: only GPUs (or slots) are counted on this machine")


def _variables(container: Container, path: str) -> Iterator[Omission]:
    for place, variable in enumerate(container.env or ()):
        if known_value(variable, "") is None:
            field = f"{path}.env[{place}].valueFrom"
            yield Omission(field=field, message=f"not read: {variable.name[:60]} is not set, give its value")


def _idle_worker(container: Container, path: str) -> Iterator[Omission]:
    words = (*(container.command or ()), *(container.args or ()))
    if words and not any(idle in " ".join(words) for idle in _IDLE_COMMANDS):
        message = "not run: on one machine the launcher starts the workers' processes"
        yield Omission(field=f"{path}.{'command' if container.command else 'args'}", message=message)
    if container.env:
        message = "not set: the workers' processes inherit the launcher's variables on this machine"
        yield Omission(field=f"{path}.env", message=message)
