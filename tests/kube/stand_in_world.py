"""A world whose kubelets and operators are stand-ins, in the test's own process.

Rule: a stand-in that breaks fails the test.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from tests.kube.client import Client
from tests.kube.control_plane import ControlPlane
from tests.kube.kubelet import Kubelet
from tests.kube.operators.base import Operator
from tests.kube.world import World

_LONGEST_DELAY_S = 5.0
"""Of operators' queues, up to 1,000 s in mpi-operator: what such stalls do is seen where time is virtual."""


class StandInWorld(World):
    """See the module.

    Args:
        plane: with the definitions of the operators' jobs.
        operators: classes of stand-ins.
        kubelet: makes the kubelets' stand-in.
        client: of the API server.
    """

    kubelet: Kubelet
    _running: asyncio.Task[None] | None = None

    def __init__(
        self,
        plane: ControlPlane,
        operators: Sequence[type[Operator]],
        kubelet: Callable[[Client], Kubelet] = Kubelet,
        client: Client | None = None,
    ) -> None:
        super().__init__(plane, client or Client(plane), [operator.resource for operator in operators])
        self.kubelet = kubelet(self.client)
        self.operators = [operator(self.client, longest_delay_s=_LONGEST_DELAY_S) for operator in operators]

    async def lose_node(self, node: str) -> None:
        """See World."""
        self.kubelet.lose(node)

    async def restore_node(self, node: str) -> None:
        """See World."""
        self.kubelet.restore(node)

    async def _begin(self) -> None:
        self._running = asyncio.create_task(self._run())
        mirrors = [self.kubelet.pods, *(operator.jobs for operator in self.operators)]
        await self.until(lambda: all(mirror.is_synced.is_set() for mirror in mirrors), what="the stand-ins listed")

    async def _end(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running

    async def _check(self) -> None:
        if self._running is not None and self._running.done():
            self._running.result()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.kubelet.run())
            for operator in self.operators:
                tasks.create_task(operator.run())
