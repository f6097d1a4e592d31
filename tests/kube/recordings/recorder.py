"""Notes what an API server answers, in a form in which two servers can be compared.

Rules: uids, versions, times and names that a server makes up are numbered in the order in which they appear, so that
equal ones stay equal; of an object only those fields are noted that voda, or a stand-in, reads or writes.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.kube import client as api
from tests.kube.client import Client, Object, Refused, Resource

ANSWERS: Final = Path(__file__).with_name("answers")
_WATCH_S: Final = 30.0
_METADATA: Final = (
    *("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "finalizers", "labels", "annotations", "ownerReferences"),
)
_READ: Final[Mapping[Resource, tuple[str, ...]]] = {
    api.PODS: (
        *("spec.schedulingGates", "spec.nodeSelector", "spec.nodeName", "spec.schedulerName", "spec.restartPolicy"),
        *("spec.containers.0.image", "spec.containers.0.resources", "status.phase", "status.reason"),
        "status.conditions",
    ),
    api.JOBS: (
        *("spec.parallelism", "spec.completions", "spec.completionMode", "spec.suspend", "spec.backoffLimit"),
        *("spec.template.spec.schedulingGates", "spec.template.spec.nodeSelector", "status.active", "status.ready"),
        *("status.startTime", "status.conditions"),
    ),
    api.NODES: ("spec.unschedulable", "spec.taints", "status.allocatable", "status.conditions"),
    api.MPIJOBS: (
        *("spec.slotsPerWorker", "spec.runPolicy", "spec.mpiReplicaSpecs.Worker.replicas", "status.conditions"),
        "status.replicaStatuses",
    ),
    api.BUDGETS: ("spec.minAvailable", "status.disruptionsAllowed"),
    api.PYTORCHJOBS: ("spec.pytorchReplicaSpecs.Worker.replicas", "status.conditions"),
}
_ALL: Final = ("spec", "status", "data")
"""Read of all other objects."""
_OF_CONDITION: Final = ("type", "status", "reason", "message")
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_VALUE: Final = re.compile(r"(?s)(Invalid value: ).*(: field is immutable)")
_UPDATES: Final = re.compile(r"(?s)(may not change fields) other than.*")
_STORAGE: Final = re.compile(r"(StorageError: invalid object), .*(Precondition failed)")
_VERSION: Final = re.compile(
    r"(too old resource version: )\d+ \(\d+\)|(ResourceVersion in (?:the precondition|record)) \(\d+\)"
)


class Recorder:
    """Sends the requests of one scenario to a server, and notes the answers.

    Args:
        client: of the server.
        namespace: of the scenario alone; it is made first.
        forget: has the server keep no changes of before, as one that was restarted.
    """

    def __init__(self, client: Client, namespace: str, forget: Callable[[], Awaitable[None]]) -> None:
        self.namespace = namespace
        self.forget = forget
        self.notes: list[Object] = []
        """One for each request: what was asked, and the answer, or the refusal."""
        self._client = client
        self._names = Names()

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        resource: Resource | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        """Send a request, and return the answer as it came; empty where it was refused."""
        kind = api.MERGE if method == "PATCH" else "application/json"
        note: Object = {"ask": f"{method} {self._names.text(path)}"}
        if body is not None:
            # What is put in the place of an elder has all that the server made of it.
            note["body"] = self._names.value(trimmed(dict(body), resource) if method == "PUT" else body)
        try:
            answer = await self._client.request(method, path, query, body, kind)
        except Refused as refused:
            note |= self._refusal(refused)
            answer = {}
        else:
            note["answer"] = self._names.value(trimmed(answer, resource))
        self.notes.append(note)
        return answer

    async def create(self, resource: Resource, body: Object, subresource: str = "") -> Object:
        """Create an object of the scenario's namespace, or act on one."""
        namespace = self.namespace if resource.is_namespaced else ""
        path = resource.path(namespace, body["metadata"]["name"] if subresource else "", subresource)
        return await self.ask("POST", path, {**head(resource), **body}, resource=resource)

    async def patch(self, resource: Resource, name: str, body: Mapping[str, Any], subresource: str = "") -> Object:
        """Change an object of that namespace by a merge patch."""
        return await self.ask("PATCH", self._path(resource, name, subresource), body, resource=resource)

    async def replace(self, resource: Resource, body: Object, subresource: str = "") -> Object:
        """Put an object in the place of its elder."""
        path = self._path(resource, body["metadata"]["name"], subresource)
        return await self.ask("PUT", path, {**head(resource), **body}, resource=resource)

    async def delete(self, resource: Resource, name: str, **options: Any) -> Object:
        """Delete an object: `grace_s`, `uid` and `version` are preconditions and options."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        conditions = {"uid": options.get("uid"), "resourceVersion": options.get("version")}
        if given := {key: value for key, value in conditions.items() if value}:
            body["preconditions"] = given
        if "grace_s" in options:
            body["gracePeriodSeconds"] = options["grace_s"]
        return await self.ask("DELETE", self._path(resource, name), body, resource=resource)

    async def read(self, resource: Resource, name: str = "", **query: str) -> Object:
        """Read an object, or list all of them."""
        return await self.ask("GET", self._path(resource, name), resource=resource, query=query)

    async def watch(self, resource: Resource, version: str, last: str, **query: str) -> None:
        """Note the changes of a collection after a version, until an object of a name shows, or the refusal."""
        told = " ".join(f"{name}={value}" for name, value in query.items())
        note: Object = {"ask": f"watch {resource.plural} after {self._names.version(version)} {told}".strip()}
        changes: list[Object] = []
        try:
            async with asyncio.timeout(_WATCH_S), aclosing(self._client.watch(resource, version, **query)) as stream:  # type: ignore[type-var]
                async for kind, thing in stream:
                    if kind == "BOOKMARK" or thing["metadata"].get("namespace", self.namespace) != self.namespace:
                        continue
                    if thing["metadata"]["name"] == last:
                        break
                    changes.append({kind: self._names.value(trimmed(thing, resource))})
        except Refused as refused:
            note |= self._refusal(refused)
        self.notes.append({**note, "changes": changes})

    def _refusal(self, refused: Refused) -> Object:
        note = {"refused": refused.status, "reason": refused.reason, "message": self._names.message(refused.message)}
        return {**note, "about": refused.about, "fields": sorted(set(refused.fields))}

    def _path(self, resource: Resource, name: str, subresource: str = "") -> str:
        return resource.path(self.namespace if resource.is_namespaced else "", name, subresource)


class Names:
    """Numbers for what a server makes up."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {"uid": {}, "version": {}, "name": {}}

    def value(self, value: Any, key: str = "") -> Any:
        """Return a value of an answer in which all such things are numbered."""
        if isinstance(value, Mapping):
            made_up = {"metadata.name": self._named(value)} if "metadata.generateName" in value else {}
            return {
                **{name: self.value(each, name.removeprefix("metadata.")) for name, each in value.items()},
                **made_up,
            }
        if isinstance(value, list | tuple):
            return [self.value(each, key) for each in value]
        if key == "uid" and value:
            return self._number("uid", str(value))
        if key == "resourceVersion" and value:
            return self.version(str(value))
        return self.text(value) if isinstance(value, str) else value

    def version(self, version: str) -> str:
        """Return the number of a version; small ones, which no server makes up, as they are."""
        return version if int(version) < 2 else self._number("version", version)

    def text(self, text: str) -> str:
        """Return a text with all that was numbered before in place, and without times."""
        for kind in ("uid", "name"):
            for known, number in self._known[kind].items():
                text = text.replace(known, number)
        return _STAMP.sub("(time)", text)

    def message(self, message: str) -> str:
        """Return a refusal without the values that Go prints in it."""
        message = _STORAGE.sub(r"\1, \2", message)
        message = _UPDATES.sub(r"\1", _VALUE.sub(r"\1(value)\2", message))
        return self.text(_VERSION.sub(r"\1\2", message))

    def _named(self, trimmed: Mapping[str, Any]) -> str:
        name, prefix = str(trimmed["metadata.name"]), str(trimmed["metadata.generateName"])
        return self._number("name", name) if name.startswith(prefix) else name

    def _number(self, kind: str, value: str) -> str:
        known = self._known[kind]
        return known.setdefault(value, f"({kind} {len(known) + 1})")


def trimmed(answer: Object, resource: Resource | None) -> Object:
    """Return what is read of an answer: of an object, a list of them, a Status."""
    if answer.get("kind") == "Status":
        return {key: answer[key] for key in ("kind", "status", "reason", "code") if key in answer}
    if "items" in answer:
        version = {"resourceVersion": answer["metadata"].get("resourceVersion", "")}
        return {"metadata": version, "items": [trimmed(each, resource) for each in answer["items"]]}
    if "metadata" not in answer:
        return _discovered(answer)
    found = {f"metadata.{key}": answer["metadata"].get(key) for key in _METADATA}
    for path in _READ.get(resource, _ALL) if resource is not None else _ALL:
        value = _at(answer, path)
        if path == "status.conditions":
            value = [{key: each.get(key) for key in _OF_CONDITION} for each in value or ()]
        found[path] = value
    return {path: value for path, value in found.items() if not _is_left_out(path, value)}


def _is_left_out(path: str, value: Any) -> bool:
    """Say whether a value reads like one that is left out."""
    return value in (None, "", [], {}) or value is False or (value == 0 and path.startswith("status."))


def _discovered(answer: Object) -> Object:
    """Return what is read of the answers that say what is served."""
    versions = [each["groupVersion"] for each in answer.get("versions", ())]
    resources = [
        {"name": each["name"], "kind": each["kind"]} for each in answer.get("resources", ()) if "/" not in each["name"]
    ]
    return {"versions": versions} if versions else {"resources": resources}


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def head(resource: Resource) -> Object:
    """Return the kind and the version of an object."""
    return {"kind": resource.kind, "apiVersion": resource.api_version}


def encoded(notes: list[Object]) -> str:
    """Return notes as they are kept: one line for each request and for each change of a watch."""
    return msgspec.json.format(msgspec.json.encode(notes), indent=1).decode() + "\n"
