"""How many workers of a job each node takes, by its labels and taints and by what other pods leave of its resources.

1. Jobs whose workers ask the same of a node are one class; what its filters say is asked once of nodes that are alike.
2. A node that takes none of them, or fewer than its GPUs would serve, refuses the job (`Job.refusals`, `Job.fits`).
3. Resources that workers of different jobs could use up together are counted (`ClusterState.scarce`), no others.

Rules: pure; what was reported of a node counts as well, and the less of both. Workers at work may stay, unless a taint
NoExecute drives them out: then they count as not at work, and are planned elsewhere. What is kept between decisions
follows from the jobs and nodes of the last one, and from nothing else: it costs what differs from it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from voda.changed_keys import gone_keys, other_keys
from voda.domain.job import Job
from voda.domain.node import Node, PodNeeds, demand_of
from voda.domain.state import ClusterState
from voda.planner.fit.marked_nodes import Closed, MarkedNodes
from voda.planner.fit.rooms import ClassRoom, NodeLimits, Rooms, Scarce, beside_held

_NO_NEEDS: Final = PodNeeds()
_NONE: Final = NodeLimits(refusals={}, fits={})
_ClassKey = tuple[bytes, int]
"""What a worker asks of its node, and its GPUs."""


def with_fit(view: ClusterState) -> ClusterState:
    """Return what `NodeFit.shown` does, with nothing kept."""
    return NodeFit().shown(view)


@dataclass
class _AlikeJobs:
    """A class of jobs, and what nodes take of it."""

    needs: PodNeeds
    gpus: int
    demand: Mapping[str, int]
    jobs: dict[str, Job] = field(default_factory=dict)
    """Those that are not being canceled."""
    closed: Closed | None = None
    """None: it is not known yet what nodes take of it."""
    room: ClassRoom | None = None
    """None: no resource can bound its workers."""
    limits: NodeLimits = _NONE

    @property
    def is_counted(self) -> bool:
        """Whether its workers may use up a resource; a job that can never start leaves everything as it is."""
        if self.room is None or not self.gpus:
            return False
        total = self.room.total
        return any(total >= (0 if job.workers else job.spec.min_replicas) for job in self.jobs.values())


class NodeFit:
    """What the nodes of a pool take of its jobs; for one thread at a time."""

    def __init__(self) -> None:
        self._nodes: Mapping[str, Node] = {}
        self._order: list[str] = []
        self._jobs: Mapping[str, Job] = {}
        self._by_report: set[str] = set()
        """Jobs of which nodes have reported what they take."""
        self._class_of: dict[str, _ClassKey] = {}
        self._classes: dict[_ClassKey, _AlikeJobs] = {}
        self._shown: dict[str, Job] = {}
        """Jobs that nodes limit, as decisions see them."""
        self._marked_nodes = MarkedNodes((), ())
        self._rooms = Rooms(())
        self._scarce: tuple[Collection[_ClassKey], Scarce] = (), {}
        """What classes may use up, and what is left of that."""

    def shown(self, view: ClusterState) -> ClusterState:
        """Return the view in which nodes refuse the jobs whose workers they cannot take, or as many of them as GPUs."""
        is_bound = any(node.taints or node.room is not None for node in view.node_groups.special.values())
        if not (is_bound or any(has_needs for *_, has_needs in view.job_groups.shapes)):
            return view
        changed, is_stale = self._follow_jobs(view.jobs), self._follow_nodes(view.nodes)
        if not all(self._marked_nodes.heeds(alike.needs) for alike in self._classes.values() if alike.closed is None):
            self._look_at_labels()
            is_stale = True
        stale = [key for key, alike in self._classes.items() if is_stale or alike.closed is None]
        self._show(changed, {key for key in stale if self._renew(self._classes[key])})
        if is_stale:
            self._scarce = (), {}
        jobs = {**view.jobs, **self._shown} if self._shown else view.jobs
        return replace(view, jobs=jobs, scarce=self._left_of_scarce())

    def _follow_jobs(self, jobs: Mapping[str, Job]) -> list[str]:
        """Sort the jobs into classes; return those that are other than before."""
        others, left = other_keys(self._jobs, jobs), set[_ClassKey]()
        for job_id in (*gone_keys(self._jobs, jobs, others), *others):
            self._shown.pop(job_id, None)
            self._by_report.discard(job_id)
            if (key := self._class_of.pop(job_id, None)) is not None:
                del self._classes[key].jobs[job_id]
                left.add(key)
        for job_id in others:
            job = jobs[job_id]
            if job.is_canceling:
                continue
            needs, gpus = job.spec.needs or _NO_NEEDS, job.spec.gpus_per_replica
            key = self._class_of[job_id] = needs.key, gpus
            if key not in self._classes:
                self._classes[key] = _AlikeJobs(needs=needs, gpus=gpus, demand=demand_of(needs))
            self._classes[key].jobs[job_id] = job
            if job.refusals:
                self._by_report.add(job_id)
        if empty := [key for key in left if not self._classes[key].jobs]:
            for key in empty:
                del self._classes[key]
            self._marked_nodes.keep([alike.needs for alike in self._classes.values()])
        self._jobs = jobs
        return others

    def _follow_nodes(self, nodes: Mapping[str, Node]) -> bool:
        """Take the nodes as they are now; return whether classes may find other room than before."""
        before, self._nodes = self._nodes, nodes
        without_gpus = [job for alike in self._classes.values() if not alike.gpus for job in alike.jobs.values()]
        if [*nodes] != self._order:
            self._order = [*nodes]
            self._marked_nodes, self._rooms = MarkedNodes((), ()), Rooms([*nodes.values()])
            self._rooms.use(without_gpus)
            self._look_at_labels()
            for alike in self._classes.values():
                alike.closed, alike.limits = None, _NONE
            return True
        changed = [name for name in other_keys(before, nodes) if nodes[name] != before[name]]
        if any(_marks(nodes[name]) != _marks(before[name]) for name in changed):
            self._look_at_labels()
        places = {name: at for at, name in enumerate(self._order)} if changed else {}
        self._rooms.put({places[name]: nodes[name] for name in changed})
        return self._rooms.use(without_gpus) or bool(changed)

    def _look_at_labels(self) -> None:
        needs = [alike.needs for alike in self._classes.values()]
        self._marked_nodes = MarkedNodes([*self._nodes.values()], needs, self._marked_nodes)

    def _renew(self, alike: _AlikeJobs) -> bool:
        """Find what nodes take of a class; return whether that is other than it was."""
        before, known = alike.limits, alike.closed
        closed = alike.closed = self._marked_nodes.of(alike.needs)
        found, alike.room = NodeLimits(refusals=closed.refusals, fits={}), None
        if self._rooms.may_bound(alike.demand, alike.gpus):
            alike.room = self._rooms.room(alike.demand, alike.gpus, closed.at)
            found = self._rooms.limits(alike.room, closed.refusals)
        # Classes whose limits are one and the same object are taken for one by whoever places their jobs.
        if found.refusals is before.refusals or (found.refusals is not closed.refusals and found == before):
            return closed is not known
        alike.limits = found
        return True

    def _show(self, changed: Iterable[str], renewed: Set[_ClassKey]) -> None:
        """Limit the jobs that are other than before, or whose nodes take other numbers of them."""
        of_class: dict[_ClassKey, set[str]] = defaultdict(set)
        for job_id in {*changed, *self._by_report}:
            if (key := self._class_of.get(job_id)) is not None:
                of_class[key].add(job_id)
        for key, alike in self._classes.items():
            assert alike.closed is not None, "what nodes take of it was found before"
            jobs, expelling = alike.jobs.keys() if key in renewed else of_class[key], alike.closed.expelling
            if alike.limits.refusals or expelling:
                self._shown.update(_limited([alike.jobs[job_id] for job_id in jobs], alike.limits, expelling))
            else:
                for job_id in jobs:
                    self._shown.pop(job_id, None)

    def _left_of_scarce(self) -> Scarce:
        counted = {key: alike for key, alike in self._classes.items() if alike.is_counted}
        if counted.keys() != self._scarce[0]:
            rooms = [(alike.room, alike.gpus) for alike in counted.values() if alike.room is not None]
            self._scarce = counted.keys(), self._rooms.scarce(rooms)
        return beside_held(self._scarce[1], (job for alike in self._classes.values() for job in alike.jobs.values()))


def _marks(node: Node) -> tuple[object, ...]:
    """Return what filters look at."""
    return node.labels, node.taints


def _limited(jobs: Iterable[Job], found: NodeLimits, expelling: frozenset[str]) -> Iterable[tuple[str, Job]]:
    """Yield the jobs of a class as its nodes limit them."""
    # A node that is cordoned refuses all jobs alike: these are one and the same mapping.
    merged: dict[int, NodeLimits] = {}
    for job in jobs:
        fit = found
        if job.refusals:
            key = id(job.refusals)
            known = None if job.fits else merged.get(key)
            fit = merged[key] = known or _least(found, job)
        if expelling and not expelling.isdisjoint(job.workers.values()):
            workers = {index: node for index, node in job.workers.items() if node not in expelling}
            yield job.spec.job_id, replace(job, refusals=fit.refusals, fits=fit.fits, workers=workers)
        else:
            yield job.spec.job_id, replace(job, refusals=fit.refusals, fits=fit.fits)


def _least(found: NodeLimits, job: Job) -> NodeLimits:
    """Return what a job's nodes take by what was found and by what was reported."""
    fits = {name: most for name, most in found.fits.items() if name not in job.refusals}
    for name, most in job.fits.items():
        if name not in found.refusals:
            fits[name] = most
        elif name in found.fits:
            fits[name] = min(most, found.fits[name])
    return NodeLimits(refusals={**found.refusals, **job.refusals}, fits=fits)
