"""Runs one replica of the service on a Kubernetes cluster, from its settings to its end.

Rule: each part starts after what it needs, and ends before it.
"""

import asyncio
import importlib
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from voda.api.listener import serving
from voda.api.server import application
from voda.app.forecasts.forecaster import Forecaster
from voda.app.home import Home
from voda.app.kubernetes.options import KubernetesOptions, ReplicaContext
from voda.app.kubernetes.service import KubernetesService
from voda.app.runtime import last_recorded_at, tune_garbage_collector
from voda.clock import SystemClock
from voda.kubernetes_client.api import Api
from voda.log.factory import open_store
from voda.placement import PLACERS
from voda.telemetry.prometheus import PrometheusTelemetry

_log = logging.getLogger(__name__)


@asynccontextmanager
async def running(options: KubernetesOptions, context: ReplicaContext) -> AsyncIterator[KubernetesService]:
    """Run one replica for the length of the block.

    Raises:
        AlreadyExists: another one works on the folder.
        InvalidInput: a setting is impossible, or names what does not exist.
        VodaError: the log or the cluster cannot be used.
    """
    home = Home(Path(options.home))
    home.make()
    async with AsyncExitStack() as stack:
        stack.enter_context(home.locked())
        with home.private_files():
            store = await open_store(options.log or home.log)
        stack.push_async_callback(store.close)
        telemetry = PrometheusTelemetry("election", "kubernetes")
        api = await Api.open(context.kubeconfig, context.context, telemetry=telemetry)
        stack.push_async_callback(api.close)
        clock = SystemClock(not_before=await last_recorded_at(store))
        service = KubernetesService(options, context, store=store, api=api, clock=clock, telemetry=telemetry)
        await service.view.open()
        await _build(service, stack)
        tune_garbage_collector()
        yield service


async def _build(service: KubernetesService, stack: AsyncExitStack) -> None:
    """Start everything in an order that the stack can undo."""
    options, view = service.options, service.view
    # Their solvers are large: loaded now, and not while a new leader's first decision is waited for.
    len(PLACERS)
    importlib.import_module("scipy.optimize")
    group = await stack.enter_async_context(asyncio.TaskGroup())
    forecaster = Forecaster(options.log or str(Path(options.home) / "voda.db"), view, service.clock, service.pools)
    for see in (service.see, forecaster.see):
        view.subscribe(see)
    listen = options.listen
    app = application(service.backend)
    service.url = await stack.enter_async_context(serving(app, listen.host, listen.port))
    works = [
        view.run(),
        service.log_health.follow(),
        service.log_health.verify(),
        service.mirror.run(),
        forecaster.run(),
        service.what_ifs.run(),
        service.leadership.run(service.lead, service.pools.follow),
    ]
    tasks = [group.create_task(work) for work in works]
    stack.callback(lambda: [task.cancel() for task in tasks])
    _log.info("serves url=%s listens=%s:%d pid=%d", service.url, listen.host or "*", listen.port, os.getpid())
