"""A collection of the cluster, kept here as the API server has it: list, then watch, for ever.

Rules: bookmarks keep the resource version fresh; 410 lists again; a list every `relist_s` heals whatever a watch
missed, and what it healed is counted (drift); a broken connection is tried again with growing, jittered pauses; one
connection per collection.
"""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from voda.clock import Clock
from voda.cluster.kubernetes.api import Api

T = TypeVar("T")
Changed = Callable[[T | None, T | None], None]
"""(object before, object now) -> nothing; None = was or is not there. Called in the order of the changes."""


class Reflector(Generic[T]):
    """Mirrors one collection.

    Args:
        api: the server.
        path: of the collection, e.g. /api/v1/pods.
        kind: what to decode its objects to; must have `.metadata`.
        changed: told of every difference, of the first list too.
        clock: of pauses and ages.
        query: labelSelector, fieldSelector.
        relist_s: seconds between lists.
        drifted: told how many objects a periodic relist had to heal.
    """

    def __init__(  # noqa: PLR0913 - its ports
        self,
        api: Api,
        path: str,
        kind: type[T],
        *,
        changed: Changed[T],
        clock: Clock,
        query: Mapping[str, str] | None = None,
        relist_s: float = 600.0,
        drifted: Callable[[int], None] | None = None,
    ) -> None:
        self.objects: Mapping[str, T] = {}
        """`namespace/name` (or name) -> object. Read-only for everybody else."""
        self.trouble = ""
        """Why it may be behind, one sentence; empty while it follows."""
        raise NotImplementedError

    async def run(self) -> None:
        """Follow until cancelled."""
        raise NotImplementedError

    async def synced(self) -> None:
        """Return once the first list is in."""
        raise NotImplementedError

    async def relist(self) -> None:
        """List now, beside the watch, and heal what differs."""
        raise NotImplementedError
