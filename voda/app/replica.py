"""One of several replicas of the service on one machine: each serves the API and follows the log, one leads.

Rule: only wiring. The replicas share a folder and a log; the log's own store elects the leader. Jobs are processes that
outlive the replica that started them, so the next leader takes them over.
"""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from voda.app.election import LOG_TIMEOUTS
from voda.app.home import Home
from voda.app.leadership import Leadership
from voda.app.machine import MachineOptions, refuse_contradictions
from voda.app.runtime import cancel_and_wait
from voda.app.service import MachineService, serving_from
from voda.controller.leader_epochs import LeaderEpochs
from voda.domain.errors import StoreNotWritable, TransientError
from voda.log.factory import lease_of
from voda.telemetry.gauges import leadership_gauges

_log = logging.getLogger(__name__)


@asynccontextmanager
async def replica(options: MachineOptions, me: str) -> AsyncIterator[MachineService]:
    """Run one replica for the length of the block; leading, it hands over at its end.

    Args:
        options: the same for all replicas, but for the port.
        me: identity of this process; no other process uses it.

    Raises:
        AlreadyExists: a `voda up` without replicas works on the folder.
        InvalidInput: an option is wrong, or the log belongs to another machine or folder.
        VodaError: the log cannot be used; see open_store.
    """
    refuse_contradictions(options)
    home = Home(options.home)
    home.make()
    with home.locked(is_shared=True):
        async with serving_from(options, home) as (service, group):
            leadership = service.leadership = _leadership(service, me)
            # The command line asks the leader; a follower must not take its place, or its end would hide the leader.
            if not home.is_served():
                service.publish()

            async def lead(epoch: int) -> None:
                service.publish()
                try:
                    await service.settle()
                except (TransientError, StoreNotWritable) as error:
                    # Another replica may reach the log; this one serves on, and campaigns again.
                    _log.warning("leadership given up epoch=%d reason=%s", epoch, error)
                    return
                await service.lead(me, epoch)

            leading = group.create_task(leadership.run(lead))
            try:
                yield service
            finally:
                home.withdraw(os.getpid())
                # The API answers until then: halted programs report how far they got.
                await cancel_and_wait(leading)


def _leadership(service: MachineService, me: str) -> Leadership:
    async def machine() -> str:
        return service.home.identity(service.clock.new_id)

    epochs = LeaderEpochs(service.store, service.clock, machine)
    lease, telemetry = lease_of(service.durable, clock=service.clock), service.telemetry
    leadership = Leadership(lease, epochs, me, timings=LOG_TIMEOUTS, telemetry=telemetry)
    telemetry.show("election")
    telemetry.read(lambda: leadership_gauges(leadership))
    return leadership
