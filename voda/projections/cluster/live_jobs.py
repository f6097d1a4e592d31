"""The live jobs of a pool, which know which of them changed lately, and what decisions ask of all of them.

Rule: what is kept beside the jobs follows from them alone, and costs what changes.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from voda.changed_keys import ChangedKeys
from voda.domain.groups import JobGroups, NodeGroups, PlannedRoom
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Placement

_ONE_CHANGE_COSTS: Final = 4
"""Looks at a job that did not change."""


class LiveJobs(dict[str, Job]):
    """Jobs by id; changed by items alone."""

    def __init__(self, jobs: Mapping[str, Job] | None = None) -> None:
        super().__init__(jobs or {})
        self.changes = ChangedKeys()
        self.in_vain = {job_id for job_id, job in self.items() if job.displaced_in_vain is not None}
        """Those for which others left GPUs in vain."""
        self._groups: JobGroups | None = None
        self._nodes = NodeGroups.of({})
        self._room: PlannedRoom | None = None
        self._grouped = self._roomed = 0
        """Changes that these have."""

    def __setitem__(self, job_id: str, job: Job) -> None:
        super().__setitem__(job_id, job)
        self.changes.add(job_id)
        (self.in_vain.discard if job.displaced_in_vain is None else self.in_vain.add)(job_id)

    def __delitem__(self, job_id: str) -> None:
        super().__delitem__(job_id)
        self.changes.add(job_id)
        self.in_vain.discard(job_id)

    def groups(self) -> JobGroups:
        """Return the jobs in groups as they are; later changes leave these as they are."""
        changed = self.changed_since(self._grouped)
        if self._groups is None or changed is None or _ONE_CHANGE_COSTS * len(changed) > len(self):
            self._groups = JobGroups.of(self.copy())
        elif changed:
            self._groups = self._groups.following(self.copy(), changed)
        self._grouped = self.changes.count
        return self._groups

    def room(self, jobs: Mapping[str, Job], nodes: Mapping[str, Node], placement: Placement) -> PlannedRoom:
        """Return what a plan leaves of nodes: the jobs are these as they are, of which `replanned` told the changes."""
        changed = self.changed_since(self._roomed)
        if self._room is None or changed is None or _ONE_CHANGE_COSTS * len(changed) > len(self):
            self._room = PlannedRoom.of(jobs, nodes, placement)
        else:
            self._room = self._room.following(jobs, nodes, placement, changed)
        self._roomed = self.changes.count
        return self._room

    def node_groups(self, nodes: Mapping[str, Node]) -> NodeGroups:
        """Return the pool's nodes in groups: the very same as long as they are as they were."""
        if self._nodes.nodes != nodes or [*self._nodes.nodes] != [*nodes]:
            self._nodes = NodeGroups.of(nodes)
        return self._nodes

    def replanned(self, job_ids: Iterable[str]) -> None:
        """Take note that a plan has other workers for these jobs."""
        for job_id in job_ids:
            self.changes.add(job_id)

    def changed_since(self, count: int) -> Collection[str] | None:
        """Return the jobs that changed, came or went after so many changes; None: any may have."""
        return () if count == self.changes.count else self.changes.since(count)
