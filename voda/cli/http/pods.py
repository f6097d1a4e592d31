"""Asks for a pod that asks for cards, where a command names one instead of a job."""

from typing import Final

from voda.cli.http.client import Client, resource_path
from voda.domain.errors import NotFound

_DEFAULT: Final = "default"
"""The namespace of a bare name, as with kubectl."""


async def pod_body(client: Client, named: str) -> bytes | None:
    """Return the answer about the pod NAME or NAMESPACE/NAME; None: the server knows none that asks for cards."""
    namespace, _, name = named.rpartition("/")
    try:
        return await client.get(resource_path("pods", namespace or _DEFAULT, name))
    except NotFound:
        return None
