"""The checker of one run: every invariant, at every event and at every change of the cluster.

Rule: it reads the log as it was committed and the cluster as it is, and believes no replica.
"""

from collections.abc import Iterable, Sequence

from tests.dst.invariants.arrays import Arrays
from tests.dst.invariants.broken import Broken
from tests.dst.invariants.guarantees import Guarantees
from tests.dst.invariants.order import Order
from tests.dst.invariants.plans import Plans
from tests.dst.invariants.shares import Shares, refuse_overfull
from tests.dst.invariants.tries import Tries
from tests.dst.invariants.truth import refuse_untrue
from tests.dst.journal import Journal
from tests.dst.world import GPU_MIB, World
from tests.kube.client import PODS
from tests.kube.memory_server import Change
from tests.kube.sharing import ASSUMED
from voda.events.envelope import Event
from voda.events.types import JobCompleted, JobFailed


class Checker:
    """Watches a world; see tests.dst.world.Watch."""

    def __init__(self, world: World, journal: Journal) -> None:
        self.order = Order()
        self.plans = Plans()
        self.arrays = Arrays(self.plans)
        self.guarantees = Guarantees(self.plans)
        self.tries = Tries()
        self.shares = Shares()
        world.pods.listeners.append(self._see_pod)
        self._journal = journal
        self._world = world

    def committed(self, events: Sequence[Event], by: str) -> None:
        """Check what was appended at one instant.

        Raises:
            Broken: an invariant does not hold.
        """
        for event in events:
            self.order.see(event, by)
            self.plans.see(event)
            self.tries.see(event)
            self.shares.see(event)
            self._journal.committed(event)
            self._refuse_false_end(event)
        self.arrays.see(events)
        self.guarantees.see(events)

    def changed(self, what: str) -> None:
        """Check the cluster.

        Raises:
            Broken: an invariant does not hold.
        """
        del what
        cluster = self._world.cluster
        refuse_untrue(cluster.nodes, cluster.workers, self.plans.specs)

    def _see_pod(self, change: Change) -> None:
        pod, before = change.object, change.before
        if change.resource != PODS or change.type != "MODIFIED" or not (node := pod["spec"].get("nodeName")):
            return
        is_bound = before is not None and not before["spec"].get("nodeName")
        try:
            if is_bound and ASSUMED in pod["metadata"].get("annotations", {}):
                self.shares.refuse_bound(pod)
            refuse_overfull(self._world.pods.all, node, GPU_MIB)
        except Broken as broken:
            self._world.breach(str(broken))

    def _refuse_false_end(self, event: Event) -> None:
        if isinstance(event.data, JobCompleted | JobFailed):
            job_id, really = event.data.job_id, self._world.cluster.ended.get(event.data.job_id)
            if type(really) is not type(event.data):
                raise Broken("belief", f"{event.type} of job {job_id} is recorded; really it is {really or 'at work'}")

    def finish(self) -> Iterable[str]:
        """Yield what is wrong once faults were over for long: jobs without an end, GPUs or shares that are held."""
        yield from self.shares.leaks(self._world.pods.all)
        plans, cluster = self.plans, self._world.cluster
        for job_id, spec in plans.specs.items():
            if job_id not in plans.ends:
                held = len(cluster.workers.get(job_id, {}))
                yield f"liveness: job {job_id} of pool {spec.pool} has not ended; it has {held} workers"
        for job_id, workers in cluster.workers.items():
            if workers and job_id in plans.ends:
                yield f"leak: job {job_id} ended at position {plans.ends[job_id]} and holds {len(workers)} workers"
        for job_id, left in plans.workers.items():
            if left and job_id in plans.ends:
                which = ", ".join(map(str, sorted(left)))
                yield f"leak: job {job_id} ended at position {plans.ends[job_id]}; the log has its workers {which}"
        believed = {name: node for name, past in plans.nodes.items() if (node := past.now) is not None}
        for name in sorted({*believed, *cluster.nodes}):
            if believed.get(name) != (really := cluster.nodes.get(name)):
                yield f"belief: the log has node {name} as {believed.get(name)}, it is {really}"
        for pool, placement in plans.placements.items():
            if placement:
                yield f"leak: the plan of pool {pool} still holds {', '.join(sorted(placement))}"
