"""One pool of a Kubernetes cluster: the Cluster port, over what all pools share.

Rule: a worker holds its GPUs from the moment it is bound until its processes have ended or its pod is gone.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

from voda.cluster.kubernetes.convergence.actuator import Actuator
from voda.cluster.kubernetes.convergence.steps import Desired, DesiredHalt, DesiredRun, DesiredStop
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.cluster.kubernetes.state.observations import Observations
from voda.cluster.kubernetes.state.pod_owners import index
from voda.cluster.kubernetes.state.worker_pods import exit_cause
from voda.cluster.port import Notice, Observed
from voda.domain.plan import Action, HaltJob, MigrateWorkers, ResizeJob, StartJob, StopJob
from voda.events.types import ExitCause

FetchMissing = Callable[[str], Awaitable[None]]
"""pool -> nothing."""


class KubernetesCluster:
    """An adapter of the Cluster port.

    Args:
        pool: whose nodes and jobs it shows.
        inventory: what there is, of all pools.
        observations: know which jobs ended, and what sizes operators were asked for.
        actuator: acts.
        fetch_missing: asks the server for a pool's objects that no watch has shown: a watch may be a moment behind.
    """

    def __init__(
        self,
        pool: str,
        inventory: Inventory,
        observations: Observations,
        actuator: Actuator,
        fetch_missing: FetchMissing,
    ) -> None:
        self.pool = pool
        self._inventory = inventory
        self._observations = observations
        self._actuator = actuator
        self._fetch_missing = fetch_missing
        self._queue: asyncio.Queue[Notice] | None = None
        """Of the one who watches."""

    async def observe(self) -> Observed:
        """See Cluster.observe."""
        inventory, pool = self._inventory, self.pool
        await self._fetch_missing(pool)
        working = inventory.jobs_with_workers()
        mine = [job_id for job_id in working if inventory.gpu_nodes(job_id) and inventory.pool(job_id) == pool]
        return Observed(
            nodes=inventory.stock.pool_nodes(pool),
            workers={job_id: inventory.gpu_nodes(job_id) for job_id in mine},
            gpus_per_replica={job_id: inventory.gpus_per_replica(job_id) for job_id in mine},
            ended={job_id: end for job_id, end in self._observations.ends.items() if inventory.pool(job_id) == pool},
            exits=_Exits(inventory),
            objects=_Objects(inventory),
            starting=[job_id for job_id in self._actuator.starting() if self._is_live(job_id)],
            sizes={job_id: size for job_id, size in self._observations.sizes.items() if inventory.pool(job_id) == pool},
        )

    def _is_live(self, job_id: str) -> bool:
        """Say whether a job of this pool goes on, for the log and for its operator."""
        job = self._inventory.job(job_id)
        return job is not None and job.spec.pool == self.pool and job_id not in self._observations.ends

    async def apply(self, action: Action) -> None:
        """See Cluster.apply."""
        await self._actuator.set_desired(action.job_id, self._desired(action))

    async def watch(self) -> AsyncIterator[Notice]:
        """See Cluster.watch."""
        queue = self._queue = asyncio.Queue()
        try:
            while True:
                yield await queue.get()
        finally:
            if self._queue is queue:
                self._queue = None

    def publish(self, notice: Notice) -> None:
        """Pass a fact about this pool to the one who watches; one who begins later observes first."""
        if self._queue is not None:
            self._queue.put_nowait(notice)

    def _desired(self, action: Action) -> Desired:
        match action:
            case StartJob() | ResizeJob():
                return DesiredRun(action.nodes)
            case MigrateWorkers():
                return self._moved(action)
            case HaltJob():
                return DesiredHalt()
            case StopJob():
                return DesiredStop(is_unwanted=action.reason == "canceled")

    def _moved(self, action: MigrateWorkers) -> DesiredRun:
        job_id = action.job_id
        nodes = {**self._inventory.gpu_nodes(job_id), **self._actuator.nodes(job_id), **action.moves}
        size = max(nodes) + 1
        if len(nodes) < size and (seen := self._inventory.object_of(job_id)) is not None:
            # Some are missing: the resize that comes with such a move says where they go, and how many there are.
            size = max(size, seen.kind.replicas(seen.object))
        return DesiredRun(tuple(nodes.get(index, "") for index in range(size)))


class _Objects(Mapping[str, str]):
    """Job id -> uid of its object, looked up one by one: there may be thousands, and few are ever needed."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def __getitem__(self, job_id: str) -> str:
        seen = self._inventory.object_of(job_id)
        if seen is None or seen.object.metadata.deletion_timestamp is not None or self._is_given_up(job_id, seen):
            raise KeyError(job_id)
        return seen.object.metadata.uid

    def _is_given_up(self, job_id: str, seen: KubeJob) -> bool:
        """Say whether the log knows by now that another object is to take this one's place."""
        job = self._inventory.job(job_id)
        is_unregistered = job is not None and not job.uid
        return is_unregistered and seen.kind.is_broken(seen.object, tuple(self._inventory.pods(seen).values()))

    def __iter__(self) -> Iterator[str]:
        return (job_id for job_id in self._inventory.jobs_with_objects() if job_id in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Exits(Mapping[str, Mapping[int, ExitCause]]):
    """Job id -> why workers ended whose pods are still there, unless their place is taken; as lazy as _Objects."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def __getitem__(self, job_id: str) -> Mapping[int, ExitCause]:
        inventory, exits = self._inventory, dict[int, ExitCause]()
        held = inventory.gpu_nodes(job_id)
        for pod in inventory.workers(job_id).values():
            number = index(pod)
            if pod.is_over and pod.spec.node_name and number is not None and number not in held:
                exits[number], _ = exit_cause(pod, pod, node=inventory.stock.nodes.get(pod.spec.node_name), wanted=None)
        return exits

    def __iter__(self) -> Iterator[str]:
        return iter(self._inventory.jobs_with_workers())

    def __len__(self) -> int:
        return sum(1 for _ in self)
