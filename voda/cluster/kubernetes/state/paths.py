"""Paths of objects on an API server.

Rule: a name is quoted, so that none can lead elsewhere.
"""

from urllib.parse import quote

from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.resources.objects import Pod

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"


def collection(kind: JobKind, namespace: str = "") -> str:
    """Return the path of all objects of a kind, in one namespace or in all."""
    return f"/apis/{kind.api_version}{_within(namespace)}/{kind.plural}"


def job_path(kind: JobKind, namespace: str, name: str) -> str:
    """Return the path of the job object of a kind and name."""
    return f"{collection(kind, namespace)}/{quote(name, safe='')}"


def pods(namespace: str) -> str:
    """Return the path of all pods of a namespace; of all namespaces where it is empty."""
    return f"/api/v1{_within(namespace)}/pods"


def pod_path(pod: Pod) -> str:
    """Return the path of a pod."""
    return f"{pods(pod.metadata.namespace)}/{quote(pod.metadata.name, safe='')}"


def _within(namespace: str) -> str:
    return f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
