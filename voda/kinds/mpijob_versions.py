"""Converts an MPIJob of one version into the other: both share a name in a cluster, so it serves only one of them.

Rule: a field with an equivalent keeps its meaning, and the operators' defaults are written out where they differ; a
field without an equivalent is named in a warning, and never dropped silently.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from voda.kinds.base import ConvertedManifest, FieldWarning
from voda.kinds.pod_template import DEFAULT_BACKOFF_LIMIT

V1: Final = "kubeflow.org/v1"
V2: Final = "kubeflow.org/v2beta1"
_SPECS: Final = "spec.mpiReplicaSpecs"
# Fields of v2beta1 that v1 does not know -> their defaults there, and the warning about any other value.
_ONLY_V2: Final = {
    "sshAuthMountPath": ("/root/.ssh", "not used: the v1 operator reaches workers by kubectl exec, not by ssh"),
    "runLauncherAsWorker": (False, "has no equivalent in v1: the launcher only launches"),
    "launcherCreationPolicy": ("AtStartup", "has no equivalent in v1: the launcher starts with the workers"),
    "mpiImplementation": ("OpenMPI", "has no equivalent in v1: the list of hosts is written as Open MPI reads it"),
}


def in_other_version(manifest: Mapping[str, Any], api_version: str) -> ConvertedManifest:
    """Return an accepted MPIJob of v1 as v2beta1, or one of v2beta1 as v1; the manifest itself stays as it is."""
    found = {**manifest, "apiVersion": api_version, "spec": _copied(manifest["spec"])}
    warnings = _to_v2(found["spec"]) if api_version == V2 else _to_v1(found["spec"])
    return ConvertedManifest(found, tuple(warnings))


def _copied(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec in which those parts that a conversion changes are copies."""
    roles = {role: dict(each) for role, each in spec["mpiReplicaSpecs"].items() if isinstance(each, Mapping)}
    return {**spec, "mpiReplicaSpecs": roles, "runPolicy": dict(spec.get("runPolicy") or {})}


def _to_v2(spec: dict[str, Any]) -> Iterator[FieldWarning]:
    policy, roles = spec["runPolicy"], spec["mpiReplicaSpecs"]
    if clean := spec.pop("cleanPodPolicy", None):
        policy.setdefault("cleanPodPolicy", clean)
    if spec.pop("mainContainer", None):
        message = "has no equivalent in v2beta1: the first container of a worker runs sshd"
        yield FieldWarning(field="spec.mainContainer", message=message)
    launcher = roles["Launcher"].get("restartPolicy") or "Never"
    if launcher == "Never" and policy.get("backoffLimit") is None:
        # In v1 a launcher that fails is the end; a v2beta1 launcher is a Job, which is tried again 6 times.
        policy["backoffLimit"] = 0
    roles["Launcher"]["restartPolicy"] = "Never" if launcher == "Never" else "OnFailure"
    if launcher in ("Always", "ExitCode"):
        message = f"{launcher} has no equivalent in v2beta1: OnFailure is used"
        yield FieldWarning(field=f"{_SPECS}.Launcher.restartPolicy", message=message)
    worker = roles["Worker"].get("restartPolicy") or "Never"
    # What ExitCode makes of a worker, voda makes of any: a failed one is made anew.
    roles["Worker"]["restartPolicy"] = "OnFailure" if worker in ("Always", "OnFailure") else "Never"
    yield FieldWarning(
        field="apiVersion", message=f"runs as {V2}: workers are reached by ssh, so images need sshd and ssh"
    )
    yield from _with_sshd(roles["Worker"])


def _to_v1(spec: dict[str, Any]) -> Iterator[FieldWarning]:
    policy, roles = spec["runPolicy"], spec["mpiReplicaSpecs"]
    for name, (default, message) in _ONLY_V2.items():
        if spec.pop(name, None) not in (None, default):
            yield FieldWarning(field=f"spec.{name}", message=message)
    if policy.get("backoffLimit") is None:
        policy["backoffLimit"] = DEFAULT_BACKOFF_LIMIT
    # A v2beta1 launcher is tried again whatever its restartPolicy, unless backoffLimit forbids it.
    roles["Launcher"]["restartPolicy"] = "OnFailure" if policy["backoffLimit"] else "Never"
    yield FieldWarning(
        field="apiVersion", message=f"runs as {V1}: workers are reached by kubectl exec, and named by pod"
    )


def _with_sshd(worker: dict[str, Any]) -> Iterator[FieldWarning]:
    """Let a worker that only sleeps, as workers of v1 do, run sshd."""
    pod = dict(worker["template"]["spec"])
    first = dict(pod["containers"][0])
    words = [str(word) for name in ("command", "args") for word in first.get(name) or ()]
    if not any("sleep" in word for word in words) or any("sshd" in word for word in words):
        return
    first.pop("command", None)
    first.pop("args", None)
    pod["containers"] = [first, *pod["containers"][1:]]
    worker["template"] = {**worker["template"], "spec": pod}
    field = f"{_SPECS}.Worker.template.spec.containers[0].command"
    yield FieldWarning(field=field, message="left out: a worker that sleeps cannot be reached by ssh, so it runs sshd")
