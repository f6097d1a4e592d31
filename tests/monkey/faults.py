"""Does the steps about devices and about what Kubernetes lets others do: taints, GPUs that vanish, quotas, partitions.

Rule: as `hands`; what a cluster does not have (devices, rules of 1.35) is left alone.
"""

from typing import Any, Final

from tests.kube import client as api
from tests.kube.assets import IS_OLD
from tests.kube.devices import CLASS, DRIVER, a_taint_rule
from tests.kube.objects import GPU
from tests.kube.operators.base import phase_of
from tests.kube.peers.stages import SAVES_FOR_S
from tests.kube.world import is_leaving
from tests.monkey import claims
from tests.monkey.hands import Hands
from tests.monkey.steps import GPUS, QUOTA, Step, node_names

_EFFECTS: Final = ("NoSchedule", "NoExecute")
_QUOTA: Final = "few"


class FaultyHands(Hands):
    """See the module."""

    has_quota = False
    """Whether jobs may be kept from what is free."""

    async def taint(self, step: Step) -> None:
        """Take a GPU of a node out by a rule, in use or not."""
        await self._lift_taint(step.target)
        device = f"gpu-{step.number % GPUS}-gpu-0"
        rule = a_taint_rule(f"bad-{step.target}", _EFFECTS[step.number // GPUS], driver=DRIVER, pool=step.target)
        rule["spec"]["deviceSelector"]["device"] = device
        if self.has_claims and not IS_OLD:
            await self.world.client.create(api.TAINT_RULES, rule)

    async def untaint(self, step: Step) -> None:
        """Bring it back."""
        await self._lift_taint(step.target)

    async def hide_gpus(self, step: Step) -> None:
        """Let a node say that it has no GPUs, as while its kubelet or driver starts anew; pods run on."""
        if self.has_claims:
            # All that the driver said, or a part of it.
            for name in claims.slice_names(step.target)[step.number % 2 :]:
                await self.world.client.delete(api.SLICES, name)
        else:
            await self._offer(step.target, 0)

    async def show_gpus(self, step: Step) -> None:
        """Let it say them again."""
        await self._show(step.target)

    async def evict_saving(self, step: Step) -> None:
        """Evict a pod by the API whose program saves, and ends with 0."""
        for pod in await self._chosen(step, lambda pod: phase_of(pod) == "Running" and not is_leaving(pod)):
            key = (str(pod["metadata"]["namespace"]), str(pod["metadata"]["name"]))
            notes = {"metadata": {"annotations": {SAVES_FOR_S: str(step.number % 2)}}}
            await self.world.client.patch(api.PODS, key, notes)
            await self.world.request_eviction(key[1])

    async def forbid(self, step: Step) -> None:
        """Let a quota forbid more than some GPUs."""
        name = f"{CLASS}.deviceclass.resource.k8s.io/devices" if self.has_claims else f"requests.{GPU}"
        meta = {"name": _QUOTA, "namespace": self.world.namespace}
        self.has_quota = True
        await self.world.client.create(api.QUOTAS, {"metadata": meta, "spec": {"hard": {name: str(step.number)}}})

    async def allow(self, step: Step) -> None:
        """Take the quota away."""
        await self.world.client.delete(api.QUOTAS, _QUOTA, self.world.namespace)
        self.has_quota = False

    async def change_suspended(self, step: Step) -> None:
        """Change what the pods of a Job ask for while it is suspended."""
        if self._kinds.get(step.target) != api.JOBS or IS_OLD:
            return
        found = await self.world.client.find(api.JOBS, step.target, self.world.namespace)
        if found is None or not found["spec"].get("suspend"):
            return
        amounts: dict[str, Any] = {"cpu": str(1 + step.number)}
        if not self.has_claims:
            amounts[GPU] = str(1 + step.number % 2)
        resources = {"limits": amounts, "requests": amounts}
        [container] = found["spec"]["template"]["spec"]["containers"]
        pod = {"spec": {"containers": [{"name": container["name"], "resources": resources}]}}
        key = (self.world.namespace, step.target)
        await self.world.client.patch(api.JOBS, key, {"spec": {"template": pod}}, kind=api.STRATEGIC)

    async def calm(self) -> None:
        """See Hands."""
        await self.allow(Step("allow", QUOTA))
        for name in node_names():
            await self._lift_taint(name)
        await super().calm()

    async def _restore(self, name: str) -> None:
        await super()._restore(name)
        await self._show(name)

    async def _show(self, node: str) -> None:
        if self.has_claims:
            await self._publish(node)
        else:
            await self._offer(node, GPUS)

    async def _offer(self, node: str, gpus: int) -> None:
        amounts = {"allocatable": {GPU: str(gpus)}}
        await self.world.client.patch(api.NODES, node, {"status": amounts}, "status")

    async def _lift_taint(self, node: str) -> None:
        if self.has_claims and not IS_OLD:
            await self.world.client.delete(api.TAINT_RULES, f"bad-{node}")
