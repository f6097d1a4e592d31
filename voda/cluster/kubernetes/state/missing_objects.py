"""Fetches, one by one, the objects that jobs should have and that no watch has shown.

Rule: a watch may be a moment behind, and never shows what came and went while it was down; so an object that is known
by such a fetch alone is fetched again, until a watch shows it or it is gone.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from voda.clock import Clock
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.cluster.kubernetes.state import paths
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.domain.job import Job

_AGAIN_S: Final = 5.0


class MissingObjects:
    """Fetches single objects from the API server.

    Args:
        inventory: takes them in.
        api: the server.
        clock: of the fetches.
        kinds: served by now, by name.
        jobs: all live ones.
    """

    def __init__(
        self,
        inventory: Inventory,
        api: Api,
        clock: Clock,
        *,
        kinds: Mapping[str, JobKind],
        jobs: Callable[[], Iterable[Job]],
    ) -> None:
        self._inventory = inventory
        self._api = api
        self._clock = clock
        self._kinds = kinds
        self._jobs = jobs
        self._fetched_at: dict[str, float] = {}
        """uid of an object that no watch has shown -> when it was fetched last."""

    def watched(self, uid: str) -> None:
        """Note that a watch shows the object, and will show when it goes."""
        self._fetched_at.pop(uid, None)

    async def fetch(self, pool: str) -> None:
        """Fetch the objects of a pool's jobs that no watch has shown.

        Raises:
            ClusterUnavailable: the server does not answer.
        """
        known, fetched = self._inventory.objects, self._fetched_at
        for job in [job for job in self._jobs() if job.uid and (job.uid not in known or job.uid in fetched)]:
            kind = self._kinds.get(job.spec.kind)
            is_due = self._clock.now() - fetched.get(job.uid, -math.inf) >= _AGAIN_S
            if job.spec.pool == pool and kind is not None and not job.is_canceling and is_due:
                await self._fetch(kind, job)

    async def _fetch(self, kind: JobKind, job: Job) -> None:
        path = paths.named(kind, job.spec.namespace, job.spec.name or job.spec.job_id)
        found = await self._api.get(path, JobObject)
        is_there = found is not None and found.metadata.uid == job.uid
        if is_there and (job.uid not in self._inventory.objects or job.uid in self._fetched_at):
            self._fetched_at[job.uid] = self._clock.now()
            self._inventory.put_object(job.uid, kind, found)
        elif not is_there and self._fetched_at.pop(job.uid, None) is not None:
            self._inventory.put_object(job.uid, kind, None)
