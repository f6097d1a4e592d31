"""A stand-in for the kubelets of all nodes: bound pods run, end as their script says, and go when they are deleted.

Rule: it writes what a kubelet writes and nothing else: pod status, and the final deletion of what has terminated.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.kube.client import PODS, Client, Key, Object, key_of, now_text
from tests.kube.mirror import Mirror, Queue

RUNS_FOR_S = "tests.voda.dev/runs-for-s"
"""Annotation of a pod: its program ends after so many seconds; without it, it runs until it is told to end."""
EXIT_CODE = "tests.voda.dev/exit-code"
"""Annotation of a pod: what its program ends with, 0 where it is not there."""


@dataclass(frozen=True)
class Ending:
    """How a program ends by itself."""

    after_s: float
    exit_code: int = 0


@dataclass
class _Life:
    """What is known of one pod beyond its object; times are the event loop's."""

    uid: str
    bound_at: float
    started_at: float | None = None
    left_at: float | None = None
    is_over: bool = False
    restarts: int = 0


def annotated(pod: Object) -> Ending | None:
    """Read a pod's script from its annotations."""
    notes = pod["metadata"].get("annotations", {})
    if RUNS_FOR_S not in notes:
        return None
    return Ending(float(notes[RUNS_FOR_S]), int(notes.get(EXIT_CODE, "0")))


class Kubelet:
    """See the module.

    Args:
        client: the API server's.
        start_delay_s: from a pod's binding to its containers' start.
        grace_s: how long containers take to end when their pod is deleted.
        script: tells how a pod's program ends by itself; None = it runs for ever.
        workers: how many requests at once.
    """

    def __init__(
        self,
        client: Client,
        *,
        start_delay_s: float = 0.0,
        grace_s: float = 0.0,
        script: Callable[[Object], Ending | None] = annotated,
        workers: int = 32,
    ) -> None:
        self._client = client
        self.start_delay_s = start_delay_s
        self.grace_s = grace_s
        self.script = script
        self._workers = workers
        self._queue = Queue(longest_s=1.0)
        self._lives: dict[Key, _Life] = {}
        self._dead: set[str] = set()
        self._addresses = 0
        self.pods = Mirror(client, PODS, fields="spec.nodeName!=", group=_node_of)
        self.pods.on_change = lambda pod, is_there: self._queue.add(key_of(pod))

    async def run(self) -> None:
        """Play all kubelets, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pods.run())
            tasks.create_task(self._queue.run(self._look, self._workers))

    def lose(self, node: str) -> None:
        """Let a node's kubelet die: nothing happens to its pods any more, not even when they are deleted."""
        self._dead.add(node)

    def restore(self, node: str) -> None:
        """Let a node's kubelet come back, and see to its pods."""
        self._dead.discard(node)
        for pod in self.pods.of(("", node)):
            self._queue.add(key_of(pod))

    async def evict(self, namespace: str, name: str) -> None:
        """End a pod as a kubelet does whose node runs out of memory."""
        pod = await self._client.get(PODS, name, namespace)
        disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
        status = {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
            "conditions": [*pod["status"].get("conditions", ()), disrupted],
        }
        await self._client.patch(PODS, (namespace, name), {"status": status}, "status")

    async def exit(self, namespace: str, name: str, exit_code: int = 0) -> None:
        """End the program of a running pod; whether it is restarted is the pod's restartPolicy's matter."""
        pod = await self._client.get(PODS, name, namespace)
        assert pod["status"].get("phase") == "Running", f"pod {namespace}/{name} does not run: {pod['status']}"
        await self._end(pod, exit_code)

    async def _look(self, key: Key) -> None:
        pod = self.pods.get(key)
        if pod is None:
            self._lives.pop(key, None)
        elif pod["spec"]["nodeName"] not in self._dead:
            await self._attend(key, pod, self._life(key, pod))

    def _life(self, key: Key, pod: Object) -> _Life:
        life = self._lives.get(key)
        if life is None or life.uid != pod["metadata"]["uid"]:
            life = self._lives[key] = _Life(pod["metadata"]["uid"], asyncio.get_running_loop().time())
        return life

    async def _attend(self, key: Key, pod: Object, life: _Life) -> None:
        now, phase = asyncio.get_running_loop().time(), pod["status"].get("phase", "Pending")
        if life.is_over or pod["metadata"].get("deletionGracePeriodSeconds") == 0:
            # The API server knows, or sees to it by itself; only the mirror is behind.
            return
        if "deletionTimestamp" in pod["metadata"]:
            life.left_at = life.left_at or now
            grace_s = min(self.grace_s, pod["metadata"].get("deletionGracePeriodSeconds", 0))
            if self._is_due(key, life.left_at + grace_s):
                await self._client.delete(PODS, key[1], key[0], grace_s=0, uid=life.uid)
                life.is_over = True
        elif phase == "Pending":
            if self._is_due(key, life.bound_at + self.start_delay_s):
                await self._start(pod, life)
        elif phase == "Running":
            await self._let_run(key, pod, life, now)

    async def _let_run(self, key: Key, pod: Object, life: _Life, now: float) -> None:
        life.started_at = life.started_at or now
        ending = self.script(pod)
        if ending is not None and self._is_due(key, life.started_at + ending.after_s):
            # From now on it is another run of the same program, if its pod has it restarted.
            life.started_at = now
            await self._end(pod, ending.exit_code)

    def _is_due(self, key: Key, at: float) -> bool:
        left_s = at - asyncio.get_running_loop().time()
        if left_s > 0:
            self._queue.add_after(key, left_s)
        return left_s <= 0

    async def _start(self, pod: Object, life: _Life) -> None:
        self._addresses += 1
        high, low = divmod(self._addresses % 65_536, 256)
        now = now_text()
        status = {
            "phase": "Running",
            "hostIP": "127.0.0.1",
            "podIP": f"10.128.{high}.{low}",
            "startTime": now,
            "conditions": _conditions("True", now),
            "containerStatuses": [
                _container(each, {"running": {"startedAt": now}}, life.restarts) for each in pod["spec"]["containers"]
            ],
        }
        await self._client.patch(PODS, key_of(pod), {"metadata": {"uid": life.uid}, "status": status}, "status")

    async def _end(self, pod: Object, exit_code: int) -> None:
        now, spec = now_text(), pod["spec"]
        ended = {
            "terminated": {
                "exitCode": exit_code,
                "reason": "Error" if exit_code else "Completed",
                "finishedAt": now,
            }
        }
        policy = spec.get("restartPolicy", "Always")
        if policy == "Always" or (policy == "OnFailure" and exit_code):
            life = self._life(key_of(pod), pod)
            life.restarts += 1
            state: Mapping[str, Any] = {"running": {"startedAt": now}}
            statuses = [{**_container(each, state, life.restarts), "lastState": ended} for each in spec["containers"]]
            status: Object = {"containerStatuses": statuses}
        else:
            statuses = [{**_container(each, ended, 0), "ready": False} for each in spec["containers"]]
            phase = "Failed" if exit_code else "Succeeded"
            status = {"phase": phase, "conditions": _conditions("False", now), "containerStatuses": statuses}
        uid = pod["metadata"]["uid"]
        await self._client.patch(PODS, key_of(pod), {"metadata": {"uid": uid}, "status": status}, "status")


def _node_of(pod: Object) -> Key:
    return "", pod["spec"]["nodeName"]


def _conditions(ready: str, now: str) -> list[Object]:
    values = {"Initialized": "True", "Ready": ready, "ContainersReady": ready, "PodScheduled": "True"}
    return [{"type": kind, "status": value, "lastTransitionTime": now} for kind, value in values.items()]


def _container(spec: Object, state: Mapping[str, Any], restarts: int) -> Object:
    return {
        "name": spec["name"],
        "image": spec.get("image", ""),
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": restarts,
        "state": state,
        "lastState": {},
    }
