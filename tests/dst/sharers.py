"""Those who share GPUs: pods come, are placed by a kube-scheduler that asks any replica, end, and go; GPUs vanish.

Rule: everything is drawn from streams of its own, so that a world without shared GPUs is what it was.
"""

import asyncio
from contextlib import suppress
from random import Random
from typing import Any, Final

from tests.dst.pods import NAMESPACE
from tests.dst.world import Answer, Unanswered, World
from tests.kube.client import Object
from tests.kube.sharing import ASSUMED, CORE, GPUS_OF, MEMORY, a_sharing_pod

_EVERY_S: Final = (60.0, 200.0)
_TRIES: Final = 6
_SIZES: Final = ((30, 2_000), (50, 9_000), (70, 0), (10, 12_000), (100, 0), (200, 0))
"""Hundredths of a GPU, and MiB; memory runs out before compute does, and the other way round."""
_WEIGHTS: Final = {"come": 10, "go": 4, "end": 3, "others": 2, "gpus": 1, "notes": 1}


class Sharers:
    """Everybody with such pods, until that instant."""

    def __init__(self, until_s: float) -> None:
        self._until_s = until_s
        self._pods = 0

    async def run(self, world: World) -> None:
        """Do one thing after the other."""
        chance = world.chance.of("sharers")
        every_s = chance.choice(_EVERY_S)
        async with asyncio.TaskGroup() as group:
            while world.now_s < self._until_s:
                await asyncio.sleep(chance.expovariate(1 / every_s))
                [kind] = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
                if kind == "come":
                    group.create_task(self._place(world, self._create(world, chance)))
                elif kind == "gpus":
                    self._vanish(world, chance)
                else:
                    self._disturb(world, chance, kind)

    def _create(self, world: World, chance: Random) -> str:
        self._pods += 1
        core, memory = chance.choice(_SIZES)
        changes: dict[str, Any] = {}
        if chance.random() < 0.2:
            amounts = {CORE: str(core), **({MEMORY: str(memory)} if memory else {})}
            changes["containers"] = {"main": amounts, "side": {CORE: "40"}}
        world.pods.ask("POST", body=a_sharing_pod(f"p{self._pods}", NAMESPACE, core, memory, **changes))
        return f"p{self._pods}"

    def _disturb(self, world: World, chance: Random, kind: str) -> None:
        """Let something happen to a pod that others than voda do."""
        pods, nodes = world.pods, sorted(world.setup.gpus)
        known = [pod for pod in pods.all.values() if bool(pod["spec"].get("nodeName")) != (kind == "others")]
        if not known:
            return
        name, node = chance.choice(known)["metadata"]["name"], chance.choice(nodes)
        match kind:
            case "go":
                pods.ask("DELETE", name, {"gracePeriodSeconds": chance.choice((0, 30))})
                world.later(30.0, pods.ask, "DELETE", name, {"gracePeriodSeconds": 0})
            case "end":
                pods.ask("PATCH", name, {"status": {"phase": "Succeeded"}}, subresource="status")
            case "others":
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                pods.ask("POST", name, {"metadata": {"name": name}, "target": target}, subresource="binding")
            case "notes":
                pods.ask("PATCH", name, {"metadata": {"annotations": {f"{GPUS_OF}main": None, ASSUMED: None}}})

    def _vanish(self, world: World, chance: Random) -> None:
        name = chance.choice(sorted(world.setup.gpus))
        whole = world.cluster.nodes[name].devices
        if len(whole) == world.setup.gpus[name]:
            world.cluster.change_node(name, devices=whole[:-1])
            world.later(chance.choice((20.0, 200.0, 900.0)), lambda: world.cluster.change_node(name, devices=whole))

    async def _place(self, world: World, name: str) -> None:
        """Try to place a pod, as kube-scheduler does; each answer may be lost, and any replica may be asked."""
        chance = world.chance.of(f"placing {name}")
        for _ in range(_TRIES):
            pod = world.pods.all.get((NAMESPACE, name))
            if pod is None or pod["spec"].get("nodeName") or await self._is_bound(world, chance, pod):
                return
            await asyncio.sleep(chance.uniform(0.5, 40.0))

    async def _is_bound(self, world: World, chance: Random, pod: Object) -> bool:
        found = await self._ask(world, "filter", {"Pod": pod, "NodeNames": sorted(world.setup.gpus)})
        names = found.json()["NodeNames"] if found is not None and found.status == 200 else []
        if not names:
            return False
        # A kube-scheduler that was started again asks for another node while its first request is under way.
        nodes = chance.sample(names, k=2 if len(names) > 1 and chance.random() < 0.2 else 1)
        answers = await asyncio.gather(*(self._bind(world, pod, node) for node in nodes))
        return any(answers)

    async def _bind(self, world: World, pod: Object, node: str) -> bool:
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": NAMESPACE, "PodUID": meta["uid"], "Node": node}
        answer = await self._ask(world, "bind", body)
        return answer is not None and answer.status == 200 and not answer.json()["Error"]

    async def _ask(self, world: World, verb: str, body: Any) -> Answer | None:
        headers = {"Content-Type": "application/json"}
        with suppress(Unanswered):
            return await world.ask("POST", f"/scheduler/{verb}", body=body, headers=headers, timeout_s=15.0)
        return None
