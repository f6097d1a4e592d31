"""Asks for a pod that asks for GPUs, where a command names one instead of a job."""

from typing import Final

from voda.cli.http.client import Client, resource_path
from voda.domain.errors import NotFound, TransientError

_DEFAULT: Final = "default"
"""The namespace of a bare name, as with kubectl."""
_POD: Final = "pod/"


def is_pod(named: str) -> bool:
    """Say whether a name is a pod's and no job's: pod/NAMESPACE/NAME."""
    return named.startswith(_POD) and named.count("/") == 2


def pod_body(client: Client, named: str) -> bytes:
    """Return the answer about the pod NAME, NAMESPACE/NAME or pod/NAMESPACE/NAME.

    Raises:
        NotFound: the server knows none that asks for GPUs.
    """
    namespace, _, name = (named.removeprefix(_POD) if is_pod(named) else named).rpartition("/")
    return client.get(resource_path("pods", namespace or _DEFAULT, name))


def pod_body_if_any(client: Client, named: str) -> bytes | None:
    """Return the answer about a pod where a name is no job's; None: it is no pod's either, as far as is known.

    A server that cannot tell now is about to: it knows that there is no such job.
    """
    try:
        return pod_body(client, named)
    except (NotFound, TransientError):
        return None
