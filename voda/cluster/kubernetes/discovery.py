"""Asks an API server which kinds of jobs it serves.

Rule: asked again now and then, because an operator may be installed after voda was.
"""

from collections.abc import Mapping
from typing import Any

from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.served_kinds import GROUP, served, version_paths


async def served_kinds(api: Api) -> Mapping[str, JobKind]:
    """Return name -> kind, of the kinds that voda can run there; empty where no operator is installed.

    Raises:
        ClusterUnavailable: try again.
    """
    group: Mapping[str, Any] | None = await api.get(GROUP, dict)
    resources: dict[str, Mapping[str, Any] | None] = {}
    for path in version_paths(group):
        resources[path] = await api.get(path, dict)
    return served(resources)
