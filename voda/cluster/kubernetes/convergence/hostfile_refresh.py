"""Makes a launcher see its new hosts at once.

A launcher reads its workers from a ConfigMap, which its kubelet refreshes a minute or more after it changed; any change
of the pod's annotations makes the kubelet refresh it now.

Rule: once after the last change of a burst, when the operator has had the time to write the ConfigMap.
"""

import asyncio
import logging
from typing import Final

from voda.clock import Clock
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.client.paths import pod_path
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.concurrency import survived
from voda.domain.errors import VodaError
from voda.metrics import LAUNCHER_POKES, Telemetry

_log = logging.getLogger(__name__)

DELAY_S: Final = 2.0


class Poker:
    """Pokes launchers whose set of running workers changed."""

    def __init__(self, inventory: Inventory, api: Api, clock: Clock, telemetry: Telemetry) -> None:
        self._inventory = inventory
        self._api = api
        self._clock = clock
        self._telemetry = telemetry
        self._running: dict[str, frozenset[str]] = {}
        self._due: dict[str, float] = {}

    def see(self, job_id: str) -> None:
        """Take note that something about a job changed."""
        pods = self._inventory.workers(job_id).items()
        now = frozenset(key for key, pod in pods if pod.status.phase == "Running" and not pod.is_leaving)
        before = self._running.pop(job_id, None)
        if now:
            self._running[job_id] = now
        if before is not None and now != before and self._launchers(job_id):
            self._due[job_id] = self._clock.now() + DELAY_S

    async def run(self) -> None:
        """Poke until cancelled."""
        while True:
            now = self._clock.now()
            for job_id in [job_id for job_id, at in self._due.items() if at <= now]:
                del self._due[job_id]
                with survived("poking", job_id):
                    for launcher in self._launchers(job_id):
                        await self._poke(job_id, launcher)
            await asyncio.sleep(DELAY_S / 4)

    async def _poke(self, job_id: str, launcher: Pod) -> None:
        noted = {well_known.POKE: self._clock.new_id()[:8]}
        try:
            await self._api.patch(pod_path(launcher), {"metadata": {"annotations": noted}}, dict)
        except VodaError as error:
            # Its hosts arrive all the same, only later.
            _log.warning("not poked job_id=%s reason=%s", job_id, error)
        else:
            self._telemetry.count(LAUNCHER_POKES)

    def _launchers(self, job_id: str) -> list[Pod]:
        job, seen = self._inventory.job(job_id), self._inventory.object_of(job_id)
        if job is None or seen is None or not job.spec.is_elastic:
            return []
        pods = self._inventory.pods(seen).values()
        return [pod for pod in pods if seen.kind.is_launcher(pod) and pod.status.phase == "Running"]
