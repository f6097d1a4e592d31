"""Fetches, one by one, the objects that jobs should have and that no watch has shown.

Rule: a watch may be a moment behind, and never shows what came and went while it was down; so an object that is known
by such a fetch alone is fetched again, until a watch shows it or it is gone.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from voda.clock import Clock
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.cluster.kubernetes.state import paths
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.domain.job import Job

_AGAIN_S: Final = 5.0


@dataclass(kw_only=True)
class MissingObjects:
    """Fetches single objects from the API server."""

    inventory: Inventory
    """Takes them in."""
    api: Api
    clock: Clock
    kinds: Mapping[str, JobKind]
    """Served by now, by name."""
    jobs: Callable[[], Iterable[Job]]
    """All live ones."""
    _fetched_at: dict[str, float] = field(default_factory=dict, init=False)
    """uid of an object that no watch has shown -> when it was fetched last."""

    def watched(self, uid: str) -> None:
        """Note that a watch shows the object, and will show when it goes."""
        self._fetched_at.pop(uid, None)

    async def fetch(self, pool: str) -> None:
        """Fetch the objects of a pool's jobs that no watch has shown.

        Raises:
            ClusterUnavailable: the server does not answer.
        """
        known, fetched = self.inventory.objects, self._fetched_at
        for job in [job for job in self.jobs() if job.uid and (job.uid not in known or job.uid in fetched)]:
            kind = self.kinds.get(job.spec.kind)
            is_due = self.clock.now() - fetched.get(job.uid, -math.inf) >= _AGAIN_S
            if job.spec.pool == pool and kind is not None and not job.is_canceling and is_due:
                await self._fetch(kind, job)

    async def _fetch(self, kind: JobKind, job: Job) -> None:
        path = paths.job_path(kind, job.spec.namespace, job.spec.name or job.spec.job_id)
        found = await self.api.get(path, JobObject)
        is_there = found is not None and found.metadata.uid == job.uid
        if is_there and (job.uid not in self.inventory.objects or job.uid in self._fetched_at):
            self._fetched_at[job.uid] = self.clock.now()
            self.inventory.put_object(job.uid, kind, found)
        elif not is_there and self._fetched_at.pop(job.uid, None) is not None:
            self.inventory.put_object(job.uid, kind, None)
