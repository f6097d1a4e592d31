"""What one machine ignores of a manifest: there are no images, mounts or pods.

Rule: exact paths and one sentence each; only fields that the manifest really has are named.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from voda.domain.errors import InvalidField
from voda.kinds.base import (
    FieldWarning,
    JobManifest,
    field_warnings,
    role_mappings,
    run_policy_mapping,
    run_policy_path,
)
from voda.kinds.pod_template import ContainerTemplate
from voda.kinds.registry import KINDS
from voda.manifests.parse import ACCELERATOR, DEVICE_CLASS, ParsedManifest
from voda.manifests.programs import env_files_annotation, known_value
from voda.manifests.replicas import is_gpu_count, is_gpu_share
from voda.programs.program_manifest import ENV_FILE

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
    "resourceClaims": "not claimed, nor counted: voda hands out the GPUs of this machine, as many as limits ask for",
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
_OF_RUN_POLICY = {
    "suspend": "not honoured: voda's policy decides when the job runs",
    "schedulingPolicy": "not read: all workers of a plan start together",
    "ttlSecondsAfterFinished": "not read: what has ended stays in the log",
    "managedBy": "not honoured: voda runs the job itself",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What workers run only to be reached by the launcher.
_IDLE_COMMANDS = ("sshd", "sleep")


def refuse_unrunnable(parsed: ParsedManifest) -> None:
    """Raise InvalidField where one machine cannot run the kind, or a role that runs here names no command."""
    job = parsed.job
    if job.local_launch is None:
        runs = " and ".join(f"{kind.name}s" for kind in KINDS.values() if kind.local_launch is not None)
        raise InvalidField("kind", f"kind: {job.kind} runs on Kubernetes only; one machine runs {runs}")
    _refuse_odd_env_files(job)
    for role in job.roles:
        index, container = job.main_container(role)
        if role in job.local_roles and not (container.command or container.args):
            field = f"{job.path(role)}.template.spec.containers[{index}].command"
            raise InvalidField(field, f"{field} is missing: the image's own command cannot be known on this machine")


def _refuse_odd_env_files(job: JobManifest) -> None:
    for name, path in env_files_annotation(job).items():
        field = f"metadata.annotations[{ENV_FILE}{name[:60]}]"
        if not _VARIABLE.fullmatch(name):
            raise InvalidField(field, f"{field}: expected the name of a variable (letters, digits and _) after the dot")
        if not path.startswith("/") or "\0" in path:
            raise InvalidField(field, f"{field}: expected an absolute path of a file with mode 0600, got {path[:80]!r}")


def local_warnings(parsed: ParsedManifest, enforced: Collection[str] = ()) -> Iterator[FieldWarning]:
    """Yield the fields of an accepted manifest that plain processes ignore, besides the warnings of `parse`.

    The limits on the resources `enforced` (memory, cpu) are not ignored.
    """
    job, spec = parsed.job, parsed.raw["spec"]
    yield from job.local_warnings(spec)
    if DEVICE_CLASS in (job.metadata.annotations or {}):
        message = "not used: voda hands out the GPUs of this machine itself"
        yield FieldWarning(field=f"metadata.annotations[{DEVICE_CLASS}]", message=message)
    yield from field_warnings(run_policy_mapping(job, spec), run_policy_path(job), _OF_RUN_POLICY)
    for role in job.roles:
        pod, path = role_mappings(job, spec)[role]["template"]["spec"], f"{job.path(role)}.template.spec"
        yield from field_warnings(pod, path, _OF_PODS)
        for name in pod.get("nodeSelector") or ():
            if name != ACCELERATOR:
                yield FieldWarning(field=f"{path}.nodeSelector[{name[:80]}]", message=_ONE_MACHINE)
        yield from _containers(job, role, pod["containers"], path, enforced)


def _uncounted_gpus(role: str, container: ContainerTemplate, path: str) -> Iterator[FieldWarning]:
    limits = (container.resources.limits if container.resources is not None else None) or {}
    for resource, amount in limits.items():
        if is_gpu_count(resource) and str(amount) != "0":
            message = f"a {role.lower()}'s GPUs are not counted here: voda gives GPUs to workers"
            yield FieldWarning(field=f"{path}.resources.limits[{resource[:80]}]", message=message)


def _containers(
    job: JobManifest, role: str, containers: Sequence[Mapping[str, Any]], path: str, enforced: Collection[str]
) -> Iterator[FieldWarning]:
    main, container = job.main_container(role)
    for index, raw in enumerate(containers):
        field = f"{path}.containers[{index}]"
        if index != main:
            yield FieldWarning(field=field, message="not run: only the container of a pod that trains runs here")
            continue
        yield from field_warnings(raw, field, _OF_CONTAINERS)
        yield from _resources(container, field, enforced)
        if role not in job.placed_roles:
            yield from _uncounted_gpus(role, container, field)
        if role in job.local_roles:
            yield from _variables(container, field)
        else:
            yield from _idle_worker(container, field)


def _resources(container: ContainerTemplate, path: str, enforced: Collection[str]) -> Iterator[FieldWarning]:
    resources = container.resources
    if resources is None:
        return
    for kind, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name in amounts or ():
            is_kept = kind == "limits" and name in enforced
            if not is_kept and not is_gpu_count(name) and not is_gpu_share(name):
                message = "not enforced: only GPUs (or slots) are counted on this machine"
                yield FieldWarning(field=f"{path}.resources.{kind}[{name[:80]}]", message=message)


def _variables(container: ContainerTemplate, path: str) -> Iterator[FieldWarning]:
    for index, variable in enumerate(container.env or ()):
        if known_value(variable, "") is None:
            message = f"not read: {variable.name[:60]} is not set, give its value"
            yield FieldWarning(field=f"{path}.env[{index}].valueFrom", message=message)


def _idle_worker(container: ContainerTemplate, path: str) -> Iterator[FieldWarning]:
    line = " ".join((*(container.command or ()), *(container.args or ())))
    if line and not any(idle in line for idle in _IDLE_COMMANDS):
        message = "not run: on one machine the launcher starts the workers' processes"
        yield FieldWarning(field=f"{path}.{'command' if container.command else 'args'}", message=message)
    if container.env:
        message = "not set: the workers' processes inherit the launcher's variables on this machine"
        yield FieldWarning(field=f"{path}.env", message=message)
