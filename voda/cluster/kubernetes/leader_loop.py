"""What only the leader does with the cluster, while it leads.

1. Publishes what changed in the inventory, as facts for the log.
2. Converges the jobs that changed towards what is desired of them.
3. Every few seconds: says what room pods of others leave, lifts old refusals, reports stalls, and looks again at jobs
   that wait for time to pass.

Rule: changes within a moment are published together, exits before starts, so that no node is ever shown overfull.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from voda.cluster.kubernetes.convergence.actuator import Actuator
from voda.cluster.kubernetes.convergence.desired import DesiredHalt, DesiredStop
from voda.cluster.kubernetes.convergence.gates import GateLifter
from voda.cluster.kubernetes.convergence.hostfile_refresh import HostfileRefresher
from voda.cluster.kubernetes.convergence.refusals import RefusalReports
from voda.cluster.kubernetes.convergence.sick_gpus import SickGpuWatch
from voda.cluster.kubernetes.convergence.stalls import StallWatch
from voda.cluster.kubernetes.kinds.operator_pods import is_launcher
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.setup import KubernetesSetup
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.observations import Observations
from voda.cluster.port import Notice
from voda.concurrency import log_unexpected
from voda.domain.job import Phase
from voda.events.types import WorkerStarted
from voda.kubernetes_client.api import Api

_BATCH_S: Final = 0.02
"""What changes within this span is published together."""
_SWEEP_S: Final = 5.0
"""A node whose room alone changes is published as often at the most."""


class LeaderLoop:
    """Publishes what changed, by the inventory's dirty sets, and acts on it."""

    def __init__(
        self, api: Api, inventory: Inventory, setup: KubernetesSetup, publish: Callable[[str, Notice], None]
    ) -> None:
        self._inventory = inventory
        self._log = setup.log
        self._publish = publish
        clock, publish_job = setup.clock, self._publish_job
        self._refusals = RefusalReports(inventory, clock, publish_job, telemetry=setup.telemetry)
        self._gates = GateLifter(inventory, api, self._refusals, telemetry=setup.telemetry)
        self.actuator = Actuator(
            inventory,
            api,
            clock,
            self._gates,
            publish_job,
            values=setup.values,
            settings=setup.settings,
            launcher_node=setup.log.launcher_node,
            telemetry=setup.telemetry,
        )
        self.observations = Observations(inventory, clock.now)
        self._stalls = StallWatch(
            inventory=inventory,
            actuator=self.actuator,
            gates=self._gates,
            clock=clock,
            api=api,
            recorded_stall=setup.log.stall,
            publish=publish_job,
        )
        self._sick = SickGpuWatch(
            inventory=inventory,
            api=api,
            clock=clock,
            settings=setup.settings,
            is_mostly_silent=setup.log.is_mostly_silent,
            publish=publish_job,
        )
        self._refresher = HostfileRefresher(inventory=inventory, api=api, clock=clock, telemetry=setup.telemetry)
        self._wake = asyncio.Event()
        self._is_leading = False

    def begin(self) -> None:
        """Take what there is as the beginning; to be called before any pool is led."""
        inventory = self._inventory
        self._is_leading = True
        inventory.take_dirty()
        jobs = list(self._log.live_jobs())
        self.observations.begin(jobs)
        self._stalls.changed(job.spec.job_id for job in jobs)
        # Whatever was left half done, and objects of jobs that ended meanwhile.
        inventory.dirty_jobs.update(inventory.jobs_with_objects())
        inventory.dirty_jobs.update(inventory.jobs_with_workers())
        self._wake.set()

    def mark_job(self, job_id: str) -> None:
        """Look at a job again: the log has changed about it."""
        if self._is_leading:
            self._inventory.dirty_jobs.add(job_id)
            self._wake.set()

    def wake(self) -> None:
        """Look at the inventory's dirty sets; where this replica does not lead, clear them."""
        if not self._is_leading:
            self._inventory.take_dirty()
        self._wake.set()

    async def run(self) -> None:
        """Publish and act until cancelled; then forget what was desired."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._sweep())
                group.create_task(self._watch_stalls())
                group.create_task(self._refresher.run())
                group.create_task(self.actuator.run())
        finally:
            self._is_leading = False
            self.actuator.stand_down()

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                await asyncio.sleep(_BATCH_S)
                self._wake.clear()
                jobs = self._publish_changes()
                # Not waited for: a server that is slow about one job must not keep facts about others from the log.
                if jobs:
                    group.create_task(self.actuator.converge(jobs))

    def _publish_changes(self) -> set[str]:
        """Publish what changed since the last call, and return the jobs concerned."""
        facts: list[tuple[str, Notice]] = []
        nodes, jobs = self._inventory.take_dirty()
        self._stalls.changed(jobs)
        if nodes:
            # A claim may have given its devices back, long after its pod has gone.
            jobs |= self._gates.waiting_reasons.keys()
        for name in sorted(nodes):
            with log_unexpected("observing a node", name):
                facts += self.observations.node_facts(name)
        for job_id in sorted(jobs):
            with log_unexpected("observing a job", job_id):
                facts += self.observations.job_facts(job_id, self.actuator.nodes(job_id))
                self._refresher.see(job_id)
                self._desire_end(job_id)
        # Starts last: what one job left in the same moment another may have by now.
        for pool, fact in sorted(facts, key=lambda each: isinstance(each[1], WorkerStarted)):
            self._publish(pool, fact)
        # Refusals after that: the workers that a node has stay there by the next plan.
        for job_id in sorted(jobs):
            with log_unexpected("looking for refusals of", job_id):
                self._refusals.look(job_id, [*self._inventory.workers(job_id).values(), *self._launchers(job_id)])
        return jobs

    def _launchers(self, job_id: str) -> Sequence[Pod]:
        """Return the launchers of a job that may go to their node and are not there: they are no workers once bound."""
        kube_job = self._inventory.object_of(job_id)
        pods = self._inventory.pods(kube_job).values() if kube_job is not None else ()
        return [pod for pod in pods if is_launcher(pod) and pod.placed_on and not pod.spec.node_name]

    def _desire_end(self, job_id: str) -> None:
        """Desire the end of what is left of a job that has ended for the log, or that its operator has given up."""
        desired, inventory = self.actuator.desired, self._inventory
        if inventory.job(job_id) is not None:
            kube_job = inventory.object_of(job_id) if job_id not in desired else None
            if kube_job is not None and kube_job.is_broken(inventory.pods(kube_job)):
                # Its workers may be as planned, so that no plan misses anything: once they go, it is started anew.
                desired[job_id] = DesiredHalt()
            return
        if isinstance(desired.get(job_id), DesiredStop):
            return
        ended = self._log.ended_job(job_id)
        if ended is None:
            # The log never had it: the registrar looks at such objects.
            desired.pop(job_id, None)
        else:
            desired[job_id] = DesiredStop(is_unwanted=ended.phase is Phase.CANCELED)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            jobs = list(self._log.live_jobs())
            with log_unexpected("observing", "the room of nodes"):
                for pool, fact in self.observations.room_facts():
                    self._publish(pool, fact)
            with log_unexpected("sweeping", "refusals"):
                self._refusals.retry(jobs)
            self._inventory.dirty_jobs.update(self.actuator.unsettled(self.actuator.desired))
            self._wake.set()

    async def _watch_stalls(self) -> None:
        """Look for sick GPUs and stalls now and then; apart from the sweep, since it waits for the server."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            with log_unexpected("looking for", "sick GPUs"):
                await self._sick.look(list(self._log.live_jobs()))
            with log_unexpected("looking for", "stalls"):
                await self._stalls.look(job.spec.job_id for job in self._log.live_jobs())

    def _publish_job(self, job_id: str, fact: Notice) -> None:
        if (pool := self._inventory.pool(job_id)) is not None:
            self._publish(pool, fact)
