"""A client of the tests' own, for stand-ins and assertions: plain JSON, one method per verb.

Rule: it shares no code with voda, so that a mistake on one side shows on the other.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import aiohttp
import msgspec

from tests.kube.control_plane import ADMIN, ControlPlane

Object = dict[str, Any]
"""Any Kubernetes object, as JSON has it."""
Key = tuple[str, str]
"""Namespace and name."""
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_REQUEST_S = 30.0
_WATCH_S = 300
_FAREWELL_S = 0.005


@dataclass(frozen=True)
class Resource:
    """What the API server serves under one plural."""

    kind: str
    api_version: str
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of one object, or of a list where no name is given."""
        root = "/api" if "/" not in self.api_version else "/apis"
        home = ("namespaces", namespace) if self.is_namespaced and namespace else ()
        parts = (root, self.api_version, *home, self.plural, name, subresource)
        return "/".join(part for part in parts if part)


NODES = Resource("Node", "v1", "nodes", is_namespaced=False)
NAMESPACES = Resource("Namespace", "v1", "namespaces", is_namespaced=False)
PODS = Resource("Pod", "v1", "pods")
SERVICES = Resource("Service", "v1", "services")
CONFIG_MAPS = Resource("ConfigMap", "v1", "configmaps")
SECRETS = Resource("Secret", "v1", "secrets")
SERVICE_ACCOUNTS = Resource("ServiceAccount", "v1", "serviceaccounts")
EVENTS = Resource("Event", "v1", "events")
JOBS = Resource("Job", "batch/v1", "jobs")
BUDGETS = Resource("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")
PRIORITIES = Resource("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", is_namespaced=False)
QUOTAS = Resource("ResourceQuota", "v1", "resourcequotas")
LEASES = Resource("Lease", "coordination.k8s.io/v1", "leases")
ROLES = Resource("Role", "rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDINGS = Resource("RoleBinding", "rbac.authorization.k8s.io/v1", "rolebindings")
CLUSTER_ROLES = Resource("ClusterRole", "rbac.authorization.k8s.io/v1", "clusterroles", is_namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    "ClusterRoleBinding", "rbac.authorization.k8s.io/v1", "clusterrolebindings", is_namespaced=False
)
CRDS = Resource("CustomResourceDefinition", "apiextensions.k8s.io/v1", "customresourcedefinitions", is_namespaced=False)
MPIJOBS = Resource("MPIJob", "kubeflow.org/v2beta1", "mpijobs")
MPIJOBS_V1 = Resource("MPIJob", "kubeflow.org/v1", "mpijobs")
TRAINJOBS = Resource("TrainJob", "trainer.kubeflow.org/v1alpha1", "trainjobs")
RUNTIMES = Resource("TrainingRuntime", "trainer.kubeflow.org/v1alpha1", "trainingruntimes")
JOBSETS = Resource("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets")
JOB_STATES = Resource("JobState", "voda.dev/v1alpha1", "jobstates")
PYTORCHJOBS = Resource("PyTorchJob", "kubeflow.org/v1", "pytorchjobs")
DEVICE_CLASSES = Resource("DeviceClass", "resource.k8s.io/v1", "deviceclasses", is_namespaced=False)
TAINT_RULES = Resource("DeviceTaintRule", "resource.k8s.io/v1", "devicetaintrules", is_namespaced=False)
SLICES = Resource("ResourceSlice", "resource.k8s.io/v1", "resourceslices", is_namespaced=False)
CLAIMS = Resource("ResourceClaim", "resource.k8s.io/v1", "resourceclaims")
CLAIM_TEMPLATES = Resource("ResourceClaimTemplate", "resource.k8s.io/v1", "resourceclaimtemplates")


class Refused(Exception):
    """The API server said no.

    Args:
        status: of HTTP.
        reason: one word.
        message: a sentence.
        about: name of the object; empty: the refusal is about none.
        fields: that are invalid, as paths.
    """

    def __init__(self, status: int, reason: str, message: str, about: str = "", fields: Sequence[str] = ()) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.about = about
        self.fields = fields


class Client:
    """See the module.

    Args:
        plane: the API server's.
        token: of whom the requests are.
    """

    def __init__(self, plane: ControlPlane, token: str = ADMIN) -> None:
        self._plane = plane
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self.sockets = WeakSet[socket.socket]()
        """Of all its connections."""

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        connector = aiohttp.TCPConnector(
            ssl=_trusting(self._plane.certificate), limit=0, socket_factory=self._make_socket
        )
        self._session = aiohttp.ClientSession(self._plane.url, headers=headers, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        assert self._session.connector is not None
        # A farewell of TLS would outlive the loop.
        await self._session.connector.close(abort_ssl=True)
        await self._session.close()
        # The connector forgets a connection whose request was cancelled, and that one says farewell.
        with suppress(TimeoutError):
            async with asyncio.timeout(_REQUEST_S):
                while any(each.fileno() >= 0 for each in self.sockets):  # noqa: ASYNC110 - nobody tells when a socket is closed
                    await asyncio.sleep(_FAREWELL_S)

    def _make_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self.sockets.add(made)
        return made

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Return an object; raise Refused (404) where there is none."""
        return await self.request("GET", resource.path(namespace, name))

    async def find(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        """Return an object, None where there is none."""
        try:
            return await self.get(resource, name, namespace)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    async def list(self, resource: Resource, namespace: str = "", labels: str = "") -> list[Object]:
        """Return the objects of a namespace, of all namespaces where none is given."""
        listed = await self.request("GET", resource.path(namespace), {"labelSelector": labels})
        return list(listed["items"])

    async def create(self, resource: Resource, body: Object, subresource: str = "") -> Object:
        """Create an object (or, with a subresource, act on one), and return what the server made of it."""
        metadata = body["metadata"]
        name = metadata["name"] if subresource else ""
        path = resource.path(metadata.get("namespace", ""), name, subresource)
        return await self.request(
            "POST", path, body={"kind": resource.kind, "apiVersion": resource.api_version, **body}
        )

    async def replace(self, resource: Resource, body: Object, subresource: str = "") -> Object:
        """Put an object in the place of its elder; refused (409) where its resourceVersion is not the newest."""
        metadata = body["metadata"]
        path = resource.path(metadata.get("namespace", ""), metadata["name"], subresource)
        return await self.request("PUT", path, body={"kind": resource.kind, "apiVersion": resource.api_version, **body})

    async def patch(
        self, resource: Resource, key: str | Key, body: Mapping[str, Any], subresource: str = "", kind: str = MERGE
    ) -> Object:
        """Change an object, given by (namespace, name) or, where it has no namespace, by name."""
        namespace, name = ("", key) if isinstance(key, str) else key
        return await self.request("PATCH", resource.path(namespace, name, subresource), body=body, content_type=kind)

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str = ""
    ) -> None:
        """Delete an object, its dependents in the background; what is not there (as that uid) is deleted already."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        body |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        body |= {"preconditions": {"uid": uid}} if uid else {}
        try:
            await self.request("DELETE", resource.path(namespace, name), body=body)
        except Refused as refused:
            if refused.status != 404 and not (uid and refused.status == 409):
                raise

    async def delete_all(self, resource: Resource, namespace: str) -> None:
        """Delete whatever a namespace holds of a resource, at once."""
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
            "gracePeriodSeconds": 0,
        }
        await self.request("DELETE", resource.path(namespace), body=body)

    async def watch(self, resource: Resource, version: str, **query: str) -> AsyncIterator[tuple[str, Object]]:
        """Tell what changes after a resourceVersion, as (ADDED | MODIFIED | DELETED | BOOKMARK, object).

        Raises:
            Refused: what the server said within the stream (410: the version is too old).
        """
        assert self._session is not None
        query |= {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        query |= {"timeoutSeconds": str(_WATCH_S)}
        limit = aiohttp.ClientTimeout(total=None, sock_connect=_REQUEST_S)
        async with self._session.get(resource.path(), params=query, timeout=limit) as answer:
            if answer.status >= 400:
                raise _refused(answer.status, await answer.read())
            try:
                async for line in _lines(answer.content):
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        raise _refused(event["object"].get("code", 500), line)
                    yield event["type"], event["object"]
            finally:
                # The connector forgets a connection that is broken off, and its farewell of TLS would outlive the loop.
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request, and return the answer; raise Refused for any status from 400."""
        assert self._session is not None
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        sent = {name: value for name, value in (query or {}).items() if value}
        limit = aiohttp.ClientTimeout(total=_REQUEST_S)
        async with self._session.request(
            method, path, params=sent, data=data, headers=headers, timeout=limit
        ) as answer:
            text = await answer.read()
            if answer.status >= 400:
                raise _refused(answer.status, text)
            return dict(msgspec.json.decode(text))


def now_text() -> str:
    """Return the present as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251 - stands for another program's clock


def key_of(thing: Object) -> Key:
    """Return the namespace (empty where there is none) and the name of an object."""
    return thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def controller_of(thing: Object) -> Object:
    """Return the reference to the object that controls this one; empty where none does."""
    owners = thing["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), {})


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    # StreamReader.readline gives up on lines as long as a large object.
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        await asyncio.sleep(0)


def _refused(status: int, text: bytes) -> Refused:
    try:
        said = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return Refused(status, "", text[:500].decode(errors="replace"))
    said = said.get("object", said) if isinstance(said, dict) else {}
    details = said.get("details") or {}
    fields = [each["field"] for each in details.get("causes", ()) if each.get("field")]
    return Refused(status, said.get("reason", ""), said.get("message", ""), details.get("name", ""), fields)


def _trusting(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    return context
