"""Makes a launcher see its new hosts at once.

A launcher reads its workers from a ConfigMap, which its kubelet refreshes a minute or more after a change; any change
of the pod's annotations makes the kubelet refresh it now.

Rule: once after the last change of a burst, when the operator has had the time to write the ConfigMap.
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from voda.clock import Clock
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.operator_pods import is_launcher
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.concurrency import log_unexpected
from voda.domain.errors import VodaError
from voda.kubernetes_client.api import Api
from voda.metrics import LAUNCHER_POKES, Telemetry
from voda.work_queue import WorkQueue

_log = logging.getLogger(__name__)

DELAY_S: Final = 2.0


@dataclass(kw_only=True)
class HostfileRefresher:
    inventory: Inventory
    api: Api
    clock: Clock
    telemetry: Telemetry
    _running: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _queue: WorkQueue[str] = field(init=False)

    def __post_init__(self) -> None:
        self._queue = WorkQueue(self.clock)

    def see(self, job_id: str) -> None:
        pods = self.inventory.workers(job_id).items()
        now = frozenset(key for key, pod in pods if pod.status.phase == "Running" and not pod.is_leaving)
        before = self._running.pop(job_id, None)
        if now:
            self._running[job_id] = now
        if before is not None and now != before and self._launchers(job_id):
            self._queue.discard(job_id)
            self._queue.add(job_id, after_s=DELAY_S)

    async def run(self) -> None:
        while True:
            job_id = await self._queue.take()
            with log_unexpected("refreshing a launcher", job_id):
                for launcher in self._launchers(job_id):
                    await self._refresh(job_id, launcher)

    async def _refresh(self, job_id: str, launcher: Pod) -> None:
        noted = {well_known.REFRESH: self.clock.new_id()[:8]}
        try:
            await self.api.patch(launcher.path, {"metadata": {"annotations": noted}}, dict)
        except VodaError as error:
            # Its hosts arrive all the same, only later.
            _log.warning("launcher not refreshed job_id=%s reason=%s", job_id, error)
        else:
            self.telemetry.count(LAUNCHER_POKES)

    def _launchers(self, job_id: str) -> list[Pod]:
        job, kube_job = self.inventory.job(job_id), self.inventory.object_of(job_id)
        if job is None or kube_job is None or not job.spec.is_elastic:
            return []
        pods = self.inventory.pods(kube_job).values()
        return [pod for pod in pods if is_launcher(pod) and pod.status.phase == "Running"]
