"""When pods came to the stages of their start, as a watch shows it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.kube import client as api
from tests.kube.client import Client, Object
from tests.kube.mirror import Mirror

_WITHIN_S = 300.0
_LOOK_S = 0.002


class Pods:
    """When each pod came to a stage (`time.perf_counter`): job -> uid of a pod -> instant.

    Args:
        client: of the API server.
        label: names a pod's job.
    """

    def __init__(self, client: Client, label: str) -> None:
        self._label = label
        self.mirror = Mirror(client, api.PODS)
        self.mirror.on_change = self._see
        self.ungated: dict[str, dict[str, float]] = {}
        self.bound: dict[str, dict[str, float]] = {}
        self.running: dict[str, dict[str, float]] = {}

    def _see(self, pod: Object, is_there: bool) -> None:
        job = self._job(pod)
        if job is None or not is_there:
            return
        now, uid = time.perf_counter(), pod["metadata"]["uid"]
        stages = (
            (self.ungated, not pod["spec"].get("schedulingGates")),
            (self.bound, bool(pod["spec"].get("nodeName"))),
            (self.running, pod["status"].get("phase") == "Running"),
        )
        for stage, is_reached in stages:
            if is_reached:
                stage.setdefault(job, {}).setdefault(uid, now)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds of the pods.

        Raises:
            RuntimeError: it does not come to hold.
        """
        deadline = time.perf_counter() + _WITHIN_S
        while not holds():
            if time.perf_counter() > deadline:
                raise RuntimeError(f"waited {_WITHIN_S:g} s in vain until {what}")
            await asyncio.sleep(_LOOK_S)

    async def until_gone(self) -> None:
        """Wait until there is no pod of any job."""
        await self.until(lambda: all(self._job(each) is None for each in self.mirror.objects.values()), "pods are gone")

    def _job(self, pod: Object) -> str | None:
        name: str | None = pod["metadata"].get("labels", {}).get(self._label)
        return name

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Follow the pods for the length of the block."""
        following = asyncio.create_task(self.mirror.run())
        await self.mirror.is_synced.wait()
        try:
            yield
        finally:
            following.cancel()
