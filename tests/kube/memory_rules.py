"""By which rules an API server makes and changes objects, and what it refuses, as the real one was recorded to.

Rule: pure; of the real one's rules those that voda, kubelets, operators or users meet (see tests/kube/recordings).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.kube import client
from tests.kube.client import Object, Refused, Resource

GRACE_S: Final = 30
_COUNTED: Final = (client.PODS, client.JOBS)
"""Beside the custom ones, the kinds whose changes have a generation."""
_CONDITIONAL: Final = (client.LEASES,)
"""Beside the custom ones, the kinds whose objects are replaced only where the version that is replaced is named."""
_JOB_DEFAULTS: Final = {"parallelism": 1, "completionMode": "NonIndexed", "backoffLimit": 6, "suspend": False}
_SCHEDULING: Final = ("schedulingGates", "nodeSelector", "affinity", "tolerations")
_OWN_FIELDS: Final = ("labels", "annotations", "ownerReferences", "finalizers")


def group_of(resource: Resource) -> str:
    """Return the API group; empty for that of pods."""
    return resource.api_version.rpartition("/")[0]


def is_custom(resource: Resource) -> bool:
    """Say whether a definition defines the kind."""
    return group_of(resource) in ("kubeflow.org", "voda.dev")


def is_counted(resource: Resource) -> bool:
    """Say whether changes of the kind's objects are counted in a generation."""
    return resource in _COUNTED or is_custom(resource) or group_of(resource) == "policy"


_VALUE: Final = "Invalid value: (value)"
"""The real one prints it in Go."""


# ---- refusals


def absent(resource: Resource, name: str) -> Refused:
    """Return the refusal of a request about what is not there."""
    return Refused(404, "NotFound", f'{_qualified(resource.plural, resource)} "{name}" not found', name)


def taken(resource: Resource, there: Object) -> Refused:
    """Return the refusal of an object whose name another one has."""
    name = there["metadata"]["name"]
    leaving = "object is being deleted: " if "deletionTimestamp" in there["metadata"] else ""
    said = f'{leaving}{_qualified(resource.plural, resource)} "{name}" already exists'
    return Refused(409, "AlreadyExists", said, name)


def conflict(what: str, name: str, why: str) -> Refused:
    """Return the refusal of a request that was meant for another state of an object."""
    return Refused(409, "Conflict", f'Operation cannot be fulfilled on {what} "{name}": {why}', name)


def invalid(resource: Resource, name: str, field: str, why: str) -> Refused:
    """Return the refusal of a value."""
    what = _qualified(resource.plural if resource == client.LEASES else resource.kind, resource)
    return Refused(422, "Invalid", f'{what} "{name}" is invalid: {field}: {why}', name, (field,))


def _qualified(word: str, resource: Resource) -> str:
    group = group_of(resource)
    return f"{word}.{group}" if group else word


# ---- preconditions


def check_version(resource: Resource, now: Object, given: Mapping[str, Any]) -> None:
    """Refuse a change that was meant for another object of the name, or for another version of it."""
    name = now["metadata"]["name"]
    if given.get("name", name) != name:
        said = f"the name of the object ({given['name']}) does not match the name on the URL ({name})"
        raise Refused(400, "BadRequest", said)
    if given.get("uid", now["metadata"]["uid"]) != now["metadata"]["uid"]:
        raise invalid(resource, name, "metadata.uid", f'Invalid value: "{given["uid"]}": field is immutable')
    if given.get("resourceVersion", now["metadata"]["resourceVersion"]) != now["metadata"]["resourceVersion"]:
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise conflict(_qualified(resource.plural, resource), name, why)


def check_replacement(resource: Resource, name: str, given: Mapping[str, Any]) -> None:
    """Refuse to put an object in the place of a version that is not named, where that has to be named."""
    if "resourceVersion" not in given and (resource in _CONDITIONAL or is_custom(resource)):
        raise invalid(resource, name, "metadata.resourceVersion", "Invalid value: 0: must be specified for an update")


def check_deletion(resource: Resource, now: Object, options: Mapping[str, Any]) -> None:
    """Refuse a deletion that was meant for another object of the name, or for another version of it."""
    metadata, wanted = now["metadata"], options.get("preconditions", {})
    for field, word, end in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        if wanted.get(field, metadata[field]) != metadata[field]:
            why = f"the {word} in the precondition ({wanted[field]}) does not match the {word} in record"
            said = f"{why} ({metadata[field]}). The object might have been {end}"
            raise conflict(resource.kind, metadata["name"], said)


# ---- objects


def created(resource: Resource, given: Object) -> Object:
    """Return an object as it is kept first, but for its metadata."""
    if resource == client.NODES:
        # Its node controller takes that away again.
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        spec = given.get("spec", {})
        return {**given, "spec": {**spec, "taints": [*(spec.get("taints") or ()), taint]}}
    made = without_status(given)
    if resource == client.JOBS:
        return {**made, "spec": {**_JOB_DEFAULTS, **made["spec"]}}
    return _as_pod(made) if resource == client.PODS else made


def changed_metadata(before: Object, given: Object) -> Object:
    """Return what an object's metadata is after a change: its client's part as given, the server's as it was."""
    held = {key: value for key, value in before.items() if key not in _OWN_FIELDS}
    return held | {key: given[key] for key in _OWN_FIELDS if given.get(key)}


def without_status(body: Mapping[str, Any]) -> Object:
    """Return an object without its status, which has a path of its own."""
    return {key: value for key, value in body.items() if key != "status"}


def check_change(resource: Resource, before: Object, now: Object) -> None:
    """Refuse a change that the kind does not allow."""
    name = before["metadata"]["name"]
    if "deletionTimestamp" in before["metadata"]:
        known = before["metadata"].get("finalizers", ())
        if more := [each for each in now["metadata"].get("finalizers", ()) if each not in known]:
            what = "no new finalizers can be added if the object is being deleted, found new finalizers"
            listed = ", ".join(f'"{each}"' for each in more)
            raise invalid(resource, name, "metadata.finalizers", f"Forbidden: {what} []string{{{listed}}}")
    if before.get("spec") == now.get("spec"):
        return
    if resource == client.PODS:
        _check_pod(name, before["spec"], now["spec"])
    if resource == client.JOBS:
        _check_job(name, before["spec"], now["spec"], before.get("status", {}))


def grace_s(pod: Object, options: Mapping[str, Any]) -> int:
    """Return how long a pod may take to go: no time at all where nothing runs that would have to end."""
    if not pod["spec"].get("nodeName") or pod["status"]["phase"] in ("Succeeded", "Failed"):
        return 0
    return int(options.get("gracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", GRACE_S)))


def _as_pod(made: Object) -> Object:
    spec = {"schedulerName": "default-scheduler", "restartPolicy": "Always", **made["spec"]}
    containers = []
    for each in spec["containers"]:
        resources = each.get("resources", {})
        requests = {**resources.get("limits", {}), **resources.get("requests", {})}
        containers.append({**each, "resources": {**resources, "requests": requests}})
    status: Object = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        why = {"reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}
        status["conditions"] = [{"type": "PodScheduled", "status": "False", **why}]
    return {**made, "spec": {**spec, "containers": containers}, "status": status}


def _check_pod(name: str, before: Object, now: Object) -> None:
    """Let gates be lifted, and a selector be added to while one was closed, and nothing else."""
    closed, left = before.get("schedulingGates") or [], now.get("schedulingGates") or []
    for place, gate in enumerate(left):
        if gate not in closed:
            field = f"spec.schedulingGates[{place}].name"
            why = f"Forbidden: only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            raise invalid(client.PODS, name, field, why)
    selector, wanted = before.get("nodeSelector") or {}, now.get("nodeSelector") or {}
    others = [
        {key: each[key] for key in each if key not in ("schedulingGates", "nodeSelector")} for each in (before, now)
    ]
    if closed and not selector.items() <= wanted.items():
        printed = "{" + ",".join(f'"{key}":"{value}"' for key, value in sorted(wanted.items())) + "}"
        why = f"Invalid value: {printed}: only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        raise invalid(client.PODS, name, "spec.nodeSelector", why)
    if others[0] != others[1] or (not closed and selector != wanted):
        raise invalid(client.PODS, name, "spec", "Forbidden: pod updates may not change fields")


def with_copies(metadata: Object, given: Mapping[str, Any]) -> Object:
    """Return the metadata of a pod with the annotations and labels of its binding."""
    copies = {key: {**metadata.get(key, {}), **given[key]} for key in ("annotations", "labels") if given.get(key)}
    return {**metadata, **copies}


def check_binding(pod: Object, given: Mapping[str, Any]) -> None:
    """Refuse to bind a pod that is gated, bound, leaving, or another one."""
    metadata, spec = pod["metadata"], pod["spec"]
    name, what = metadata["name"], "pods/binding"
    if given.get("uid", metadata["uid"]) != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {metadata['uid']}"
        raise conflict("pods", name, f"StorageError: invalid object, {why}")
    version = metadata["resourceVersion"]
    if given.get("resourceVersion", version) != version:
        why = f"ResourceVersion in precondition: {given['resourceVersion']}, in object meta: {version}"
        raise conflict("pods", name, f"StorageError: invalid object, Precondition failed: {why}")
    if "deletionTimestamp" in metadata:
        raise conflict(what, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict(what, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict(what, name, f"pod {name} has non-empty .spec.schedulingGates")


def budgets_of(pod: Object, budgets: Iterable[Object]) -> list[Object]:
    """Return the budgets that the eviction of a pod takes from; refuse it where one allows no disruption."""
    labels = pod["metadata"].get("labels", {})
    own = [each for each in budgets if each["spec"]["selector"]["matchLabels"].items() <= labels.items()]
    if any(not each.get("status", {}).get("disruptionsAllowed") for each in own):
        said = "Cannot evict pod as it would violate the pod's disruption budget."
        raise Refused(429, "TooManyRequests", said)
    return own


def _check_job(name: str, before: Object, now: Object, status: Object) -> None:
    """Let a Job be suspended and resized, and its template change in what scheduling needs while it is suspended."""
    for field in ("completionMode", "template"):
        if field == "template" and before["template"] != now["template"] and _may_be_scheduled_anew(before, status):
            _check_template(name, before["template"], now["template"])
        elif before.get(field) != now.get(field):
            raise invalid(client.JOBS, name, f"spec.{field}", f"{_VALUE}: field is immutable")
    if before.get("completions") == now.get("completions"):
        return
    if before.get("completionMode") != "Indexed":
        raise invalid(client.JOBS, name, "spec.completions", f"{_VALUE}: field is immutable")
    if now.get("completions") != now.get("parallelism"):
        why = f"Invalid value: {now.get('completions')}: can only be modified in tandem with spec.parallelism"
        raise invalid(client.JOBS, name, "spec.completions", why)


def _may_be_scheduled_anew(spec: Object, status: Object) -> bool:
    """Say whether a Job is suspended and has no pods."""
    return bool(spec.get("suspend")) and not status.get("startTime") and not status.get("active")


def _check_template(name: str, before: Object, now: Object) -> None:
    specs = [{key: each["spec"][key] for key in each["spec"] if key not in _SCHEDULING} for each in (before, now)]
    if specs[0] != specs[1]:
        raise invalid(client.JOBS, name, "spec.template.spec", f"{_VALUE}: field is immutable")
