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
from tests.kube import memory_rules as rules
from tests.kube.client import Key, Object, Refused, Resource, key_of
from tests.kube.merge_patch import apply_patch

_GROUPS: Final = ("kubeflow.org", "voda.dev", "resource.k8s.io")
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
    client.BUDGETS,
    client.DEVICE_CLASSES,
    client.SLICES,
    client.TAINT_RULES,
    client.CLAIMS,
    client.CLAIM_TEMPLATES,
)
_NAMESPACES: Final = ("default", "ns")
"""There from the beginning."""
_NOT_SERVED: Final = Refused(404, "", "404 page not found\n")
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
    before: Object | None = None
    """What was there until then."""


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
        self.now = now
        self._served = {(each.api_version, each.plural): each for each in (*_CORE, *jobs)}
        self._history: list[Change] = []
        self._version = 1
        self._uids = 0
        self._oldest = 0
        """Watches that begin before this version are refused."""
        self._grown = asyncio.Event()
        self._cuts = 0
        for name in _NAMESPACES:
            self.answer("POST", client.NAMESPACES.path(), {}, {"metadata": {"name": name}})

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
            case "POST" if target.subresource == "eviction":
                return self._evict(target)
            case "POST":
                return self._create(target, body or {})
            case "PUT":
                return self._replace(target, body or {})
            case "PATCH":
                return self._patch(target, body or {})
            case "DELETE" if not target.name:
                return self._delete_all(target, body or {})
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
                if change.resource == target.resource and (seen := _as_selected(change, target.namespace, query)):
                    yield seen
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
        there = sorted(self.objects[target.resource].values(), key=key_of)
        items = [each for each in there if _is_selected(each, target.namespace, query)]
        return {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": items}

    def _create(self, target: Target, body: Mapping[str, Any]) -> Object:
        resource, given = target.resource, dict(body["metadata"])
        if resource.is_namespaced and ("", target.namespace) not in self.objects[client.NAMESPACES]:
            raise rules.absent(client.NAMESPACES, target.namespace)
        self._uids += 1
        if not given.get("name") and given.get("generateName"):
            given["name"] = f"{given['generateName']}{self._uids:05x}"
        if (there := self.objects[resource].get((target.namespace, given["name"]))) is not None:
            raise rules.taken(resource, there)
        metadata = {"name": given["name"], "uid": f"uid-{self._uids}", "creationTimestamp": self._stamp()}
        metadata |= {"generateName": given["generateName"]} if given.get("generateName") else {}
        metadata |= {"namespace": target.namespace} if resource.is_namespaced else {}
        metadata |= {"generation": 1} if rules.is_counted(resource) else {}
        head = {"kind": resource.kind, "apiVersion": resource.api_version}
        whole = {**head, **body, "metadata": rules.changed_metadata(metadata, given)}
        return self._keep(resource, "ADDED", rules.created(resource, whole))

    def _replace(self, target: Target, body: Mapping[str, Any]) -> Object:
        now, given = self._found(target), body["metadata"]
        rules.check_replacement(target.resource, target.name, given)
        return self._change(target, now, given, dict(body))

    def _patch(self, target: Target, body: Mapping[str, Any]) -> Object:
        now = self._found(target)
        if target.subresource == "scale":
            specs, role = _SCALED[target.resource.plural]
            body = {"spec": {specs: {role: {"replicas": body["spec"]["replicas"]}}}}
            whole = target._replace(subresource="")
            return self._scale(self._change(whole, now, {}, apply_patch(now, body)))
        return self._change(target, now, body.get("metadata") or {}, apply_patch(now, body))

    def _change(self, target: Target, now: Object, given: Mapping[str, Any], wanted: Object) -> Object:
        """Have an object be as it is wanted, as far as the path lets that be written."""
        rules.check_version(target.resource, now, given)
        if target.subresource == "status":
            return self._update(target, now, {**now, "status": wanted.get("status", {})})
        metadata = rules.changed_metadata(now["metadata"], wanted["metadata"])
        status = {"status": now["status"]} if "status" in now else {}
        return self._update(target, now, {**rules.without_status(wanted), **status, "metadata": metadata})

    def _update(self, target: Target, before: Object, now: Object) -> Object:
        if before == now:
            return before
        rules.check_change(target.resource, before, now)
        if before.get("spec") != now.get("spec") and "generation" in now["metadata"]:
            now["metadata"] = {**now["metadata"], "generation": before["metadata"]["generation"] + 1}
        if _is_let_go(now):
            self._keep(target.resource, "DELETED", before)
            return now
        return self._keep(target.resource, "MODIFIED", now)

    def _scale(self, job: Object) -> Object:
        specs, role = _SCALED["pytorchjobs"]
        shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        metadata = {key: job["metadata"][key] for key in shown}
        return {"kind": "Scale", "metadata": metadata, "spec": {"replicas": job["spec"][specs][role]["replicas"]}}

    def _bind(self, target: Target, body: Mapping[str, Any]) -> Object:
        pod = self._found(target)
        rules.check_binding(pod, body["metadata"])
        conditions = [{"type": "PodScheduled", "status": "True"}]
        status = {**pod["status"], "conditions": conditions}
        self._keep(
            client.PODS,
            "MODIFIED",
            {
                **pod,
                "metadata": rules.with_copies(pod["metadata"], body["metadata"]),
                "spec": {**pod["spec"], "nodeName": body["target"]["name"]},
                "status": status,
            },
        )
        return {"kind": "Status", "status": "Success", "code": 201}

    def _evict(self, target: Target) -> Object:
        budgets = rules.budgets_of(self._found(target), self.objects[client.BUDGETS].values())
        for budget in budgets:
            left = budget["status"]["disruptionsAllowed"] - 1
            self._keep(
                client.BUDGETS, "MODIFIED", {**budget, "status": {**budget["status"], "disruptionsAllowed": left}}
            )
        self._delete(target._replace(subresource=""), {})
        return {"kind": "Status", "status": "Success", "code": 201}

    def _delete_all(self, target: Target, options: Mapping[str, Any]) -> Object:
        listed = self._list(target, {})
        for each in listed["items"]:
            namespace, name = key_of(each)
            self._delete(target._replace(namespace=namespace, name=name), options)
        return listed

    def _delete(self, target: Target, options: Mapping[str, Any]) -> Object:
        now, resource = self._found(target), target.resource
        rules.check_deletion(resource, now, options)
        metadata = now["metadata"]
        held = bool(metadata.get("finalizers"))
        if resource != client.PODS and not held:
            self._keep(resource, "DELETED", now)
            return {"kind": "Status", "status": "Success"}
        grace_s = rules.grace_s(now, options) if resource == client.PODS else 0
        if metadata.get("deletionGracePeriodSeconds", grace_s + 1) <= grace_s and (held or grace_s):
            return now
        leaving = {"deletionTimestamp": self._stamp(grace_s), "deletionGracePeriodSeconds": grace_s}
        if "deletionTimestamp" not in metadata and "generation" in metadata:
            leaving["generation"] = metadata["generation"] + 1
        left = {**now, "metadata": {**metadata, **leaving}}
        if held or grace_s:
            return self._keep(resource, "MODIFIED", left)
        if resource == client.PODS:
            self._keep(resource, "MODIFIED", left)
        return self._keep(resource, "DELETED", left)

    # ---- inside

    def _keep(self, resource: Resource, kind: str, now: Object) -> Object:
        self._version += 1
        now = {**now, "metadata": {**now["metadata"], "resourceVersion": str(self._version)}}
        there, key = self.objects[resource], key_of(now)
        before = there.get(key)
        if kind == "DELETED":
            del there[key]
        else:
            there[key] = now
        change = Change(self._version, resource, kind, now, before)
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
            raise rules.absent(target.resource, target.name)
        return found

    def _target(self, path: str) -> Target:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        version, rest = (parts[1], parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource = self._served.get((version, rest[0])) if rest else None
        if resource is None:
            raise _NOT_SERVED
        return Target(resource, namespace, *(*rest[1:], "", "")[:2])

    def _discovery(self, path: str) -> Object:
        group = path.split("/")[2]
        versions = sorted({version for version, _ in self._served if version.startswith(f"{group}/")})
        if path == f"/apis/{group}":
            return {"kind": "APIGroup", "versions": [{"groupVersion": version} for version in versions]}
        version = path.removeprefix("/apis/")
        if version not in versions:
            raise _NOT_SERVED
        served = [each for (of, _), each in self._served.items() if of == version]
        return {"kind": "APIResourceList", "resources": [{"name": each.plural, "kind": each.kind} for each in served]}

    def _stamp(self, later_s: float = 0.0) -> str:
        return datetime.fromtimestamp(self.now() + later_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def refusal_body(refused: Refused) -> Object:
    """Return what the server says with a refusal."""
    details: Object = {"name": refused.about} if refused.about else {}
    details |= {"causes": [{"field": field} for field in refused.fields]} if refused.fields else {}
    said = {"kind": "Status", "status": "Failure", "code": refused.status, "reason": refused.reason}
    return {**said, "message": refused.message, **({"details": details} if details else {})}


def _as_selected(change: Change, namespace: str, query: Mapping[str, str]) -> Change | None:
    """Return a change as a watch with selectors shows it; None where it shows nothing."""
    is_selected = _is_selected(change.object, namespace, query)
    was_selected = change.before is not None and _is_selected(change.before, namespace, query)
    if change.type == "DELETED" or (was_selected and not is_selected):
        return change._replace(type="DELETED", object=_last_seen(change)) if was_selected else None
    if not is_selected:
        return None
    return change._replace(type="MODIFIED" if was_selected else "ADDED")


def _last_seen(change: Change) -> Object:
    """Return an object that is gone for a watch as it was last for it, with the version of the change."""
    if change.type == "DELETED" or change.before is None:
        return change.object
    version = {"resourceVersion": str(change.version)}
    return {**change.before, "metadata": {**change.before["metadata"], **version}}


def _is_let_go(thing: Object) -> bool:
    """Say whether nothing holds an object any more that is being deleted."""
    metadata = thing["metadata"]
    is_due = metadata.get("deletionGracePeriodSeconds", 1) == 0
    return "deletionTimestamp" in metadata and is_due and not metadata.get("finalizers")


def _is_selected(thing: Object, namespace: str, query: Mapping[str, str]) -> bool:
    metadata = thing["metadata"]
    if namespace and metadata.get("namespace") != namespace:
        return False
    if query.get("fieldSelector") == "spec.nodeName!=" and not thing["spec"].get("nodeName"):
        return False
    label, has_value, value = query.get("labelSelector", "").partition("=")
    labels = metadata.get("labels", {})
    return not label or (labels.get(label) == value if has_value else label in labels)
