"""One pool of a Kubernetes cluster: the Cluster port, over what all pools share.

Rule: a worker holds its GPUs from the moment it is bound until its processes have ended or its pod is gone.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from voda.cluster.attempts import measured
from voda.cluster.kubernetes.convergence.actuator import Actuator
from voda.cluster.kubernetes.convergence.desired import Desired, DesiredHalt, DesiredRun, DesiredStop
from voda.cluster.kubernetes.kinds.operator_pods import index
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_objects import done_exits
from voda.cluster.kubernetes.state.job_pods import exit_cause
from voda.cluster.kubernetes.state.observations import Observations
from voda.cluster.port import Notice, Observed
from voda.concurrency import for_each
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob, StopJob
from voda.events.types import ExitCause
from voda.metrics import NO_TELEMETRY, Telemetry

_AT_ONCE: Final = 16
"""Jobs that are told what is desired of them at a time."""
T = TypeVar("T")


@dataclass
class KubernetesCluster:
    pool: str
    """Whose nodes and jobs it shows."""
    inventory: Inventory
    observations: Observations
    """Know which jobs ended, and what sizes operators were asked for."""
    actuator: Actuator
    fetch_missing: Callable[[str], Awaitable[None]]
    """Fetches the pool's objects that no watch has shown: a watch may be a moment behind."""
    telemetry: Telemetry = NO_TELEMETRY
    _queue: "asyncio.Queue[Notice] | None" = field(default=None, init=False)
    """Of the one who watches."""

    async def observe(self) -> Observed:
        inventory, pool = self.inventory, self.pool
        await self.fetch_missing(pool)
        working = {job_id: nodes for job_id in inventory.jobs_with_workers() if (nodes := inventory.gpu_nodes(job_id))}
        mine = {job_id: nodes for job_id, nodes in working.items() if inventory.pool(job_id) == pool}
        return Observed(
            nodes=inventory.stock.pool_nodes(pool),
            workers=mine,
            gpus_per_replica=_Lazy(lambda: mine, inventory.gpus_per_replica),
            ended={job_id: end for job_id, end in self.observations.ends.items() if inventory.pool(job_id) == pool},
            exits=_Lazy(inventory.jobs_with_workers, self._exits),
            objects=_Lazy(inventory.jobs_with_objects, self._uid),
            starting=self._starting(),
            underway=self._underway(),
            sizes={
                job_id: size
                for job_id, size in self.observations.sizes.items()
                if job_id in mine or inventory.pool(job_id) == pool
            },
        )

    def _starting(self) -> Sequence[str]:
        """Return the jobs that are to run and of which no worker holds GPUs yet."""
        runs = (job_id for job_id, state in self.actuator.desired.items() if isinstance(state, DesiredRun))
        return [job_id for job_id in runs if not self.inventory.gpu_nodes(job_id) and self._is_live(job_id)]

    def _underway(self) -> Mapping[str, Sequence[str]]:
        """Return the nodes of the jobs that are to run, and that the actuator works on by itself."""
        underway = self.actuator.underway
        runs = ((job_id, state) for job_id, state in self.actuator.desired.items() if job_id in underway)
        return {job_id: state.nodes for job_id, state in runs if isinstance(state, DesiredRun)}

    def _is_live(self, job_id: str) -> bool:
        job = self.inventory.job(job_id)
        return job is not None and job.spec.pool == self.pool and job_id not in self.observations.ends

    async def set_desired(self, actions: Sequence[Action]) -> float:
        await for_each(actions, self.apply, at_once=_AT_ONCE)
        return math.inf

    async def apply(self, action: Action) -> None:
        """Begin one action; what fails is reported, and tried again."""
        with measured(action, self.pool, self.telemetry):
            await self.actuator.set_desired(action.job_id, self._desired(action))

    async def watch(self) -> AsyncIterator[Notice]:
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
            case HaltJob():
                return DesiredHalt(is_kill=action.is_kill)
            case StopJob():
                return DesiredStop(is_unwanted=action.reason == "canceled", is_kill=action.is_kill)

    def _uid(self, job_id: str) -> str | None:
        """Return the uid of a job's object; None where it has none, or is about to have another."""
        kube_job = self.inventory.object_of(job_id)
        if kube_job is None or kube_job.object.metadata.deletion_timestamp is not None:
            return None
        job = self.inventory.job(job_id)
        if job is not None and not job.uid and kube_job.is_broken(self.inventory.pods(kube_job)):
            return None
        return kube_job.object.metadata.uid

    def _exits(self, job_id: str) -> Mapping[int, ExitCause]:
        """Return why workers ended whose pods are still there, or that are done, unless another one has their index."""
        inventory, exits = self.inventory, dict[int, ExitCause]()
        holders, done = inventory.gpu_nodes(job_id), done_exits(inventory.object_of(job_id))
        for pod in inventory.workers(job_id).values():
            number = index(pod)
            if pod.is_over and pod.spec.node_name and number is not None and number not in holders:
                node = inventory.stock.nodes.get(pod.spec.node_name)
                exits[number], _ = exit_cause(pod, pod, node=node, wanted=None)
        return {**exits, **{index: cause for index, (cause, _) in done.items() if index not in holders}}


class _Lazy(Mapping[str, T]):
    """Job id -> what is found of it, looked up one by one: there may be thousands, and few are ever needed."""

    def __init__(self, job_ids: Callable[[], Iterable[str]], find: Callable[[str], T | None]) -> None:
        self._job_ids = job_ids
        self._find = find

    def __getitem__(self, job_id: str) -> T:
        if (found := self._find(job_id)) is None:
            raise KeyError(job_id)
        return found

    def __iter__(self) -> Iterator[str]:
        return (job_id for job_id in self._job_ids() if job_id in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
