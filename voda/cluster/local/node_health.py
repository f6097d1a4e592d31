"""The node that a local cluster is, as its GPUs' driver shows it: how many GPUs it offers, and which no worker may get.

Rule: a driver that hangs or fails changes nothing, and is asked by one thread at a time.
"""

import asyncio
import logging
from typing import Final

from msgspec.structs import replace

from voda.cluster.local.context import LocalContext
from voda.cluster.local.devices import GpuHealth
from voda.events.types import NodeChanged

_TIMEOUT_S: Final = 10.0
_log = logging.getLogger(__name__)


class NodeHealth:
    def __init__(self, context: LocalContext) -> None:
        self.node = replace(context.config.node, gpus=len(context.config.devices))
        self._context = context
        self._looking: asyncio.Future[GpuHealth] | None = None
        """The look at the GPUs' health that is under way."""

    async def look(self) -> None:
        """Look at the GPUs, where there are any, and bar those that workers must not get; report the node if it offers
        another number than before.
        """
        if self._context.config.health is None:
            return
        if self._looking is None:
            look, held = self._context.config.health.look, self._context.slots.held()
            self._looking = asyncio.get_running_loop().run_in_executor(None, look, held)
        # A driver that hangs keeps its thread; it must not get another one.
        done, _ = await asyncio.wait((self._looking,), timeout=_TIMEOUT_S)
        if not done:
            _log.warning("node=%s its GPUs' driver did not answer within %g s", self.node.name, _TIMEOUT_S)
            return
        looked, self._looking = self._looking, None
        try:
            health = looked.result()
        except Exception as error:  # the driver's library raises its own family
            _log.warning("node=%s its GPUs' driver cannot be read: %s", self.node.name, error)
            return
        self._heed(health)

    def _heed(self, health: GpuHealth) -> None:
        names = {device.name for device in self._context.config.devices}
        broken, foreign = health.broken.keys() & names, health.foreign & names
        self._context.barred = frozenset(broken | foreign)
        node = replace(self.node, gpus=len(names - broken), foreign_gpus=len(foreign - broken))
        if node != self.node:
            for name in sorted(broken):
                _log.warning("node=%s gpu=%s is not used: %s", node.name, name, health.broken[name])
            self.node = node
            self._context.tell(NodeChanged(node=node))
