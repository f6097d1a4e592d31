"""An API server in memory: objects with resource versions, conflicts, graceful deletion, lists and watches.

Rules: as strict as the real one where it is strict (preconditions, bindings, status as a subresource, pods that stay
until their kubelet lets them go); it answers at once, so whoever wants delays and faults puts them on the way to it
(memory_api.py); it collects nothing and runs nothing: that is what its controllers are for (memory_controllers.py).
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from tests.kube import client
from tests.kube.client import Key, Object, Refused, Resource, key_of
from tests.kube.merge_patch import apply_patch

_GROUPS: Final = ("kubeflow.org", "voda.dev")
_CORE: Final = (
    client.NODES,
    client.NAMESPACES,
    client.PODS,
    client.SERVICES,
    client.CONFIG_MAPS,
    client.SECRETS,
    client.SERVICE_ACCOUNTS,
    client.EVENTS,
    client.JOBS,
    client.LEASES,
    client.ROLES,
    client.ROLE_BINDINGS,
    client.JOB_STATES,
)
_GRACE_S: Final = 30
_SCALED: Final = {"pytorchjobs": ("pytorchReplicaSpecs", "Worker")}


class Target(NamedTuple):
    """What a path names."""

    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        """Of the object."""
        return self.namespace, self.name


class Change(NamedTuple):
    """What a watch tells."""

    version: int
    resource: Resource
    type: str
    object: Object


class MemoryServer:
    """See the module.

    Args:
        now: seconds since the epoch.
        jobs: kinds of job objects that are served.
    """

    def __init__(self, now: Callable[[], float], jobs: Sequence[Resource]) -> None:
        self.objects: defaultdict[Resource, dict[Key, Object]] = defaultdict(dict)
        """All there is. To be read only: every change makes a new object."""
        self.on_change: Callable[[Change], None] = lambda change: None
        """Told of every change, before anybody who watches."""
        self._now = now
        self._served = {(each.api_version, each.plural): each for each in (*_CORE, *jobs)}
        self._history: list[Change] = []
        self._version = 1
        self._uids = 0
        self._oldest = 0
        """Watches that begin before this version are refused."""
        self._grown = asyncio.Event()
        self._cuts = 0

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None) -> Object:
        """Return the answer to a request.

        Raises:
            Refused: with the status and the reason that the real server gives.
        """
        if path.startswith("/apis/") and path.split("/")[2] in _GROUPS and path.count("/") <= 3:
            return self._discovery(path)
        target = self._target(path)
        match method:
            case "GET":
                return self._found(target) if target.name else self._list(target, query)
            case "POST" if target.subresource == "binding":
                return self._bind(target, body or {})
            case "POST":
                return self._create(target, body or {})
            case "PUT":
                return self._replace(target, body or {})
            case "PATCH":
                return self._patch(target, body or {})
            case "DELETE":
                return self._delete(target, body or {})
        raise Refused(405, "MethodNotAllowed", f"{method} {path}")

    async def watch(self, path: str, after: str, query: Mapping[str, str]) -> AsyncGenerator[Change, None]:
        """Yield what changes in a collection after a version, until its time is over.

        Raises:
            Refused: that version is not kept any more (410).
            ConnectionError: the watch was cut.
        """
        target, cuts = self._target(path), self._cuts
        ends_at = asyncio.get_running_loop().time() + float(query.get("timeoutSeconds", "300"))
        if int(after) < self._oldest:
            raise Refused(410, "Expired", f"too old resource version: {after} ({self._oldest})")
        place = next((at for at, each in enumerate(self._history) if each.version > int(after)), len(self._history))
        while True:
            while place < len(self._history):
                change = self._history[place]
                place += 1
                if change.resource == target.resource and _is_asked_for(change.object, target.namespace, query):
                    yield change
            try:
                async with asyncio.timeout_at(ends_at):
                    await self._grown.wait()
            except TimeoutError:
                return
            if self._cuts != cuts:
                raise ConnectionResetError("the watch was cut")

    def serve(self, *jobs: Resource) -> None:
        """Serve more kinds of job objects from now on, as a server does that has just started."""
        self._served |= {(each.api_version, each.plural): each for each in jobs}

    def cut(self, *, forgets: bool = False) -> None:
        """End all watches; where it forgets, they cannot go on from where they were."""
        self._cuts += 1
        if forgets:
            self._oldest = self._version
        self._wake()

    # ---- verbs

    def _list(self, target: Target, query: Mapping[str, str]) -> Object:
        there = self.objects[target.resource].values()
        items = [each for each in there if _is_asked_for(each, target.namespace, query)]
        return {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": items}

    def _create(self, target: Target, body: Mapping[str, Any]) -> Object:
        resource, given = target.resource, body["metadata"]
        key = target.namespace, given["name"]
        if key in self.objects[resource]:
            raise Refusal(409, "AlreadyExists", f'{resource.plural} "{key[1]}" already exists', key[1])
        self._uids += 1
        metadata = {**given, "uid": f"uid-{self._uids}", "creationTimestamp": self._stamp(), "generation": 1}
        metadata |= {"namespace": target.namespace} if resource.is_namespaced else {}
        made = {"kind": resource.kind, "apiVersion": resource.api_version, **body, "metadata": metadata}
        if resource != client.NODES:
            made.pop("status", None)
        return self._keep(resource, "ADDED", _as_pod(made) if resource == client.PODS else made)

    def _replace(self, target: Target, body: Mapping[str, Any]) -> Object:
        now, given = self._found(target), body["metadata"]
        _check(now, given)
        changed = {"status": body.get("status", {})} if target.subresource == "status" else _without_status(body)
        metadata = now["metadata"] if target.subresource else {**now["metadata"], **_own(given)}
        return self._update(target, now, {**now, **changed, "metadata": metadata})

    def _patch(self, target: Target, body: Mapping[str, Any]) -> Object:
        now = self._found(target)
        _check(now, body.get("metadata", {}))
        if target.subresource == "scale":
            specs, role = _SCALED[target.resource.plural]
            body = {"spec": {specs: {role: {"replicas": body["spec"]["replicas"]}}}}
        change = {"status": body.get("status", {})} if target.subresource == "status" else _without_status(body)
        if "metadata" in change:
            change["metadata"] = _own(change["metadata"])
        return self._update(target, now, apply_patch(now, change))

    def _update(self, target: Target, before: Object, now: Object) -> Object:
        is_pod = target.resource == client.PODS and not target.subresource
        if is_pod and before["spec"] != now["spec"] and not _lifts_gate(before["spec"], now["spec"]):
            raise Refusal(422, "Invalid", "pod updates may not change fields", target.name)
        if before == now:
            return before
        if before.get("spec") != now.get("spec"):
            now["metadata"] = {**now["metadata"], "generation": before["metadata"]["generation"] + 1}
        return self._keep(target.resource, "MODIFIED", now)

    def _bind(self, target: Target, body: Mapping[str, Any]) -> Object:
        pod = self._found(target)
        _check(pod, body["metadata"])
        if pod["spec"].get("nodeName"):
            node = pod["spec"]["nodeName"]
            raise Refusal(409, "Conflict", f"pod {target.name} is already assigned to node {node!r}", target.name)
        if "deletionTimestamp" in pod["metadata"]:
            raise Refusal(409, "Conflict", f"pod {target.name} is being deleted", target.name)
        if pod["spec"].get("schedulingGates"):
            raise Refusal(409, "Conflict", f"pod {target.name} has non-empty .spec.schedulingGates", target.name)
        conditions = [{"type": "PodScheduled", "status": "True"}]
        status = {**pod["status"], "conditions": conditions}
        bound = {**pod, "spec": {**pod["spec"], "nodeName": body["target"]["name"]}, "status": status}
        self._keep(client.PODS, "MODIFIED", bound)
        return {"kind": "Status", "status": "Success", "code": 201}

    def _delete(self, target: Target, options: Mapping[str, Any]) -> Object:
        if not target.name:
            for key in [
                key for key in self.objects[target.resource] if not target.namespace or key[0] == target.namespace
            ]:
                self._delete(target._replace(namespace=key[0], name=key[1]), options)
            return {"kind": "Status", "status": "Success"}
        now = self._found(target)
        _check(now, options.get("preconditions", {}))
        grace_s = _grace_s(now, options) if target.resource == client.PODS else 0
        if grace_s == 0:
            self._keep(target.resource, "DELETED", now)
        elif grace_s < now["metadata"].get("deletionGracePeriodSeconds", _GRACE_S + 1):
            metadata = {**now["metadata"], "deletionTimestamp": self._stamp(grace_s)}
            self._keep(
                target.resource, "MODIFIED", {**now, "metadata": {**metadata, "deletionGracePeriodSeconds": grace_s}}
            )
        return {"kind": "Status", "status": "Success"}

    # ---- inside

    def _keep(self, resource: Resource, kind: str, now: Object) -> Object:
        self._version += 1
        now = {**now, "metadata": {**now["metadata"], "resourceVersion": str(self._version)}}
        if kind == "DELETED":
            del self.objects[resource][key_of(now)]
        else:
            self.objects[resource][key_of(now)] = now
        change = Change(self._version, resource, kind, now)
        self._history.append(change)
        self.on_change(change)
        self._wake()
        return now

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    def _found(self, target: Target) -> Object:
        found = self.objects[target.resource].get(target.key)
        if found is None:
            raise Refusal(404, "NotFound", f'{target.resource.plural} "{target.name}" not found', target.name)
        return found

    def _target(self, path: str) -> Target:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        version, rest = (parts[1], parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource = self._served.get((version, rest[0])) if rest else None
        if resource is None:
            raise Refused(404, "NotFound", f"the server could not find the requested resource {path}")
        return Target(resource, namespace, *(*rest[1:], "", "")[:2])

    def _discovery(self, path: str) -> Object:
        group = path.split("/")[2]
        versions = sorted({version for version, _ in self._served if version.startswith(f"{group}/")})
        if path == f"/apis/{group}":
            return {"kind": "APIGroup", "versions": [{"groupVersion": version} for version in versions]}
        version = path.removeprefix("/apis/")
        if version not in versions:
            raise Refused(404, "NotFound", f"the server does not serve {version}")
        served = [each for (of, _), each in self._served.items() if of == version]
        return {"kind": "APIResourceList", "resources": [{"name": each.plural, "kind": each.kind} for each in served]}

    def _stamp(self, later_s: float = 0.0) -> str:
        return datetime.fromtimestamp(self._now() + later_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Refusal(Refused):
    """A refusal that is about an object."""

    def __init__(self, status: int, reason: str, message: str, name: str) -> None:
        super().__init__(status, reason, message)
        self.about = name


def refusal_body(refused: Refused) -> Object:
    """Return what the server says with a refusal."""
    details = {"details": {"name": refused.about}} if isinstance(refused, Refusal) else {}
    said = {"kind": "Status", "status": "Failure", "code": refused.status, "reason": refused.reason}
    return {**said, "message": str(refused), **details}


def _lifts_gate(before: Object, now: Object) -> bool:
    """Say whether nothing changes in a pod but gates that open, and a selector that is added while one was closed."""
    others = [
        {name: value for name, value in spec.items() if name not in ("schedulingGates", "nodeSelector")}
        for spec in (before, now)
    ]
    closed, left = before.get("schedulingGates") or [], now.get("schedulingGates") or []
    selects = (before.get("nodeSelector") or {}).items() <= (now.get("nodeSelector") or {}).items()
    return others[0] == others[1] and bool(closed) and selects and all(gate in closed for gate in left)


def _check(now: Object, given: Mapping[str, Any]) -> None:
    """Refuse what was meant for another object, or for another version of it."""
    for field in ("uid", "resourceVersion"):
        if given.get(field) and given[field] != now["metadata"][field]:
            told = f"the {field} in the precondition ({given[field]}) is not that of the object"
            raise Refusal(409, "Conflict", told, now["metadata"]["name"])


def _own(metadata: Mapping[str, Any]) -> Object:
    """Return the part of metadata that a client may set."""
    return {key: metadata[key] for key in ("labels", "annotations", "ownerReferences") if key in metadata}


def _without_status(body: Mapping[str, Any]) -> Object:
    return {key: value for key, value in body.items() if key != "status"}


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


def _grace_s(pod: Object, options: Mapping[str, Any]) -> int:
    """Return how long a pod may take to go: no time at all where nothing runs that would have to end."""
    if not pod["spec"].get("nodeName") or pod["status"]["phase"] in ("Succeeded", "Failed"):
        return 0
    return int(options.get("gracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", _GRACE_S)))


def _is_asked_for(thing: Object, namespace: str, query: Mapping[str, str]) -> bool:
    metadata = thing["metadata"]
    if namespace and metadata.get("namespace") != namespace:
        return False
    if query.get("fieldSelector") == "spec.nodeName!=" and not thing["spec"].get("nodeName"):
        return False
    label, _, value = query.get("labelSelector", "").partition("=")
    return not label or metadata.get("labels", {}).get(label) == value
