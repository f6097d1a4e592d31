"""Jobs, nodes and what a plan leaves of them, by what decisions ask of all of them: then these need not look at each.

Rule: each follows from what it is of, and from nothing else, whether it is made anew or follows what changed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec import Struct

from voda.domain.gpus import NO_GPUS, Gpus, total
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Placement

T = TypeVar("T")


class JobGroups(Struct, frozen=True, kw_only=True):
    """Jobs by what decisions ask of all of them, so that these need not look at each."""

    jobs: Mapping[str, Job]
    special: Mapping[str, Job]
    """Those that are (`Job.is_special`)."""
    shapes: Mapping[tuple[int, Gpus, int, bool], int]
    """(priority, GPUs of a worker, least workers, whether these ask for more) -> jobs that are not being canceled."""

    most: Mapping[str, int]
    """Job that is not being canceled -> its most workers."""
    most_gpus: int
    """Of all these."""

    @classmethod
    def of(cls, jobs: Mapping[str, Job]) -> "JobGroups":
        """Return the groups of jobs, made anew."""
        special = {job_id: job for job_id, job in jobs.items() if job.is_special}
        ready = [job for job in jobs.values() if not job.is_canceling]
        most = {job.spec.job_id: job.spec.max_replicas for job in ready}
        gpus = sum([job.spec.max_replicas * job.spec.gpus_per_replica for job in ready])
        return cls(jobs=jobs, special=special, shapes=Counter(map(_shape, ready)), most=most, most_gpus=gpus)

    def following(self, jobs: Mapping[str, Job], changed: Iterable[str]) -> "JobGroups":
        """Return the groups of jobs of which at most these `changed`, came or went; it costs what changed."""
        special, shapes, most, gpus = dict(self.special), dict(self.shapes), copied(self.most), self.most_gpus
        for job_id in changed:
            special.pop(job_id, None)
            if (old := self.jobs.get(job_id)) is not None and not old.is_canceling:
                shapes[_shape(old)] -= 1
                gpus -= most.pop(job_id) * old.spec.gpus_per_replica
            if (new := jobs.get(job_id)) is not None:
                special |= {job_id: new} if new.is_special else {}
                if not new.is_canceling:
                    shapes[_shape(new)] = shapes.get(_shape(new), 0) + 1
                    most[job_id] = new.spec.max_replicas
                    gpus += new.spec.max_replicas * new.spec.gpus_per_replica
        shapes = {shape: count for shape, count in shapes.items() if count}
        return JobGroups(jobs=jobs, special=special, shapes=shapes, most=most, most_gpus=gpus)


def _shape(job: Job) -> tuple[int, Gpus, int, bool]:
    spec = job.spec
    return spec.priority, spec.gpus_per_replica, spec.min_replicas, spec.needs is not None


class NodeGroups(Struct, frozen=True, kw_only=True):
    """Nodes by what decisions ask of all of them."""

    nodes: Mapping[str, Node]
    special: Mapping[str, Node]
    """Those that are (`Node.is_special`)."""
    capacity_gpus: Gpus

    @classmethod
    def of(cls, nodes: Mapping[str, Node]) -> "NodeGroups":
        """Return the groups of nodes."""
        special = {name: node for name, node in nodes.items() if node.is_special}
        return cls(nodes=nodes, special=special, capacity_gpus=total([node.usable_gpus for node in nodes.values()]))


class PlannedRoom(Struct, frozen=True, kw_only=True):
    """What the plan in force leaves of the nodes."""

    jobs: Mapping[str, Job]
    nodes: Mapping[str, Node]
    placement: Placement
    free: Mapping[str, Gpus]
    """Node -> GPUs beside the planned workers of jobs that are not being canceled; below 0 where it has fewer, and of
    nodes that have left."""
    spanning: Mapping[str, None]
    """Such jobs whose planned workers are on several nodes."""

    @classmethod
    def of(cls, jobs: Mapping[str, Job], nodes: Mapping[str, Node], placement: Placement) -> "PlannedRoom":
        """Return the room, made anew."""
        free = {name: node.usable_gpus for name, node in nodes.items()}
        nobody = cls(jobs={}, nodes=nodes, placement={}, free=free, spanning={})
        return nobody.following(jobs, nodes, placement, placement)

    def following(
        self, jobs: Mapping[str, Job], nodes: Mapping[str, Node], placement: Placement, changed: Iterable[str]
    ) -> "PlannedRoom":
        """Return the room where at most these jobs, or what is planned for them, changed; it costs what changed."""
        free, spanning = copied(self.free), copied(self.spanning)
        if nodes is not self.nodes:
            for name in {*self.nodes, *nodes}:
                if (old := self.nodes.get(name)) is not (new := nodes.get(name)):
                    more = (new.usable_gpus if new else NO_GPUS) - (old.usable_gpus if old else NO_GPUS)
                    free[name] = free.get(name, NO_GPUS) + more
        for job_id in changed:
            spanning.pop(job_id, None)
            for of, planned, sign in ((self.jobs, self.placement, 1), (jobs, placement, -1)):
                job, at = of.get(job_id), planned.get(job_id, ())
                if job is None or job.is_canceling:
                    continue
                for name in at:
                    free[name] = free.get(name, NO_GPUS) + sign * job.spec.gpus_per_replica
                if sign < 0 and at and at.count(at[0]) < len(at):
                    spanning[job_id] = None
        return PlannedRoom(jobs=jobs, nodes=nodes, placement=placement, free=free, spanning=spanning)


def copied(mapping: Mapping[str, T]) -> dict[str, T]:
    """Return a copy; of a dictionary in a tenth of the time that `dict` takes, which closes its gaps."""
    return mapping.copy() if isinstance(mapping, dict) else dict(mapping)
