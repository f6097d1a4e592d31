"""Workers whose GPUs are sick: the log is told at once, and after `node_grace_s` they leave, for others to go on.

1. `sick_gpu` says of a worker which of its GPUs its kubelet calls unhealthy, or is gone from its node's slices;
   `contested_gpu` which of them another pod was given as well.
2. `SickGpuWatch.look` tells the log what differs from it, and deletes the pods of workers that plans count no more.

Rules: a node that says none of its GPUs is silent, and none of them is sick: that is what its own grace is for. A
device that kube-scheduler may still give to claims counts as well: its worker would get it again. Where most nodes of
a pool are silent nothing is deleted, as no plan counts a worker there as lost.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from voda.clock import Clock
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory, NodeStock
from voda.cluster.kubernetes.state.job_claims import contested_gpu
from voda.concurrency import for_each, log_unexpected
from voda.domain.job import CONTESTED, CONTESTED_AGAIN, GONE, Job, SickGpu
from voda.domain.settings import Settings
from voda.events.types import WorkerGpuSick
from voda.kubernetes_client.api import Api

_log = logging.getLogger(__name__)
_UNHEALTHY: Final = "Unhealthy"
_OF_CLAIM: Final = "claim:"
_AT_ONCE: Final = 8
_MOST_LEFT: Final = 1_000
"""Contested GPUs that are remembered once their worker has left."""


def sick_gpu(pod: Pod, stock: NodeStock) -> tuple[str, str] | None:
    """Return which GPU of a worker is sick, and how; None: all are well, as far as is known."""
    claims = [stock.devices.claims.get(f"{pod.metadata.namespace}/{name}") for name in pod.claim_names]
    held = sorted(device for claim in claims if claim is not None for device in claim.devices)
    for device in held:
        if stock.devices.published.is_gone(device):
            return "/".join(device), GONE
    found = pod.spec.node_name and stock.node(pod.spec.node_name)
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        for resource in status.allocated_resources_status:
            sick = next((each for each in resource.resources if each.health == _UNHEALTHY), None)
            if sick is None:
                continue
            is_closed = resource.name.startswith(_OF_CLAIM) and any(map(stock.devices.published.is_closed, held))
            if is_closed or (resource.name == stock.rule.resource and found and found.gpus):
                return sick.resource_id, _UNHEALTHY
    return None


@dataclass(kw_only=True)
class SickGpuWatch:
    inventory: Inventory
    api: Api
    clock: Clock
    settings: Callable[[str], Settings]
    """Of a pool."""
    is_mostly_silent: Callable[[str], bool]
    """Of a pool: see JobLog."""
    publish: Callable[[str, WorkerGpuSick], None]
    _left_by: dict[tuple[str, str], str] = field(default_factory=dict, init=False)
    """Contested GPU and pod -> uid of the worker that left it: kube-scheduler may give it to the successor again."""

    async def look(self, live: Iterable[Job]) -> None:
        """Tell the log what has changed, and delete the pods of those that have been sick for too long."""
        late_by_pool: dict[str, list[Pod]] = {}
        for job in live:
            with log_unexpected("looking for sick GPUs of", job.spec.job_id):
                if found := [*self._look_at(job)]:
                    late_by_pool.setdefault(job.spec.pool, []).extend(found)
        while len(self._left_by) > _MOST_LEFT:
            del self._left_by[next(iter(self._left_by))]
        leaving = [pod for pool, pods in late_by_pool.items() if not self.is_mostly_silent(pool) for pod in pods]
        await for_each(leaving, self._delete, at_once=_AT_ONCE)

    def _look_at(self, job: Job) -> Iterable[Pod]:
        job_id = job.spec.job_id
        for index, pod in self.inventory.holders(job_id).items():
            node, known = pod.spec.node_name, job.sick_gpus.get(index)
            found = self._found(pod, known)
            if job.workers.get(index) != node or (found is None and known is None):
                continue
            if found is None or known is None or (known.gpu, known.reason, known.other) != found:
                gpu, reason, other = found or ("", "", "")
                fact = WorkerGpuSick(job_id=job_id, worker=index, node=node, gpu=gpu, reason=reason, other=other)
                self.publish(job_id, fact)
            elif self._is_late(job, known.since) and known.reason != CONTESTED_AGAIN and not pod.is_leaving:
                if known.reason == CONTESTED:
                    self._left_by[known.gpu, known.other] = pod.metadata.uid
                yield pod

    def _found(self, pod: Pod, known: SickGpu | None) -> tuple[str, str, str] | None:
        """Return which GPU of a worker is sick or contested, how, and who else has it; None: all are well."""
        if (sick := sick_gpu(pod, self.inventory.stock)) is not None:
            return (*sick, "")
        if (contested := contested_gpu(self.inventory, pod)) is None:
            return None
        left_by = self._left_by.get(contested, pod.metadata.uid)
        # A former leader may have seen that.
        was_again = known is not None and (known.gpu, known.other, known.reason) == (*contested, CONTESTED_AGAIN)
        is_first = left_by == pod.metadata.uid and not was_again
        return contested[0], CONTESTED if is_first else CONTESTED_AGAIN, contested[1]

    def _is_late(self, job: Job, since: float) -> bool:
        grace_s = self.settings(job.spec.pool).node_grace_s
        return job.spec.is_restartable and self.clock.now() >= since + grace_s

    async def _delete(self, pod: Pod) -> None:
        with log_unexpected("deleting", pod.metadata.key):
            await self.api.delete(pod.path, uid=pod.metadata.uid)
