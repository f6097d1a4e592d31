"""Whether the service lives, whether it is ready, and its figures for Prometheus.

Rule: a look costs little: what is cheap may be asked every second, by anybody.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from voda.api.operation import PUBLIC, TEXT, Operation, Response
from voda.application.backend import Backend
from voda.auth.callers import Caller
from voda.domain.errors import TransientError, VodaError
from voda.telemetry.gauges import StateGauges
from voda.telemetry.job_counters import JobCounters
from voda.telemetry.prometheus import CONTENT_TYPE

_TAG: Final = "Service"
_STORE_S: Final = 2.0
"""How long a look at the log may take."""


class HealthHandlers:
    """The handlers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._counters = JobCounters(backend.telemetry, backend.view.roster)
        self._gauges = StateGauges(backend)
        self._registry = CollectorRegistry()
        self._registry.register(self._gauges)
        backend.view.each(self._counters.see)

    async def live(self, _request: web.Request, _who: Caller) -> web.StreamResponse:
        """Say that the server answers."""
        return web.Response(text="ok\n")

    async def ready(self, _request: web.Request, _who: Caller) -> web.StreamResponse:
        """Say whether jobs are decided on, and why not."""
        if reason := self._backend.not_ready():
            raise TransientError(f"not ready: {reason}")
        return web.Response(text="ready\n")

    async def metrics(self, _request: web.Request, _who: Caller) -> web.StreamResponse:
        """Return all figures."""
        self._counters.settle()
        with suppress(VodaError, TimeoutError):
            async with asyncio.timeout(_STORE_S):
                await self._look_at_log()
        body = self._backend.exposition() + generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _look_at_log(self) -> None:
        """Find out how far the view is behind the log, others' appends included."""
        store, folded = self._backend.store, self._backend.view.position
        behind = await store.position() - folded
        self._gauges.lag_events, self._gauges.lag_s = max(0, behind), 0.0
        if behind > 0 and (oldest := await store.read(folded, 1)):
            self._gauges.lag_s = max(0.0, self._backend.clock.now() - oldest[0].recorded_at)


def routes(backend: Backend) -> Sequence[Operation]:
    """Return the operations."""
    health = HealthHandlers(backend)
    plain = (Response(media_type=TEXT),)
    return [
        Operation(
            method="GET",
            path="/healthz",
            handler=health.live,
            name="getHealth",
            summary="Whether the server answers",
            tag=_TAG,
            roles=PUBLIC,
            answers=plain,
        ),
        Operation(
            method="GET",
            path="/livez",
            handler=health.live,
            name="getLiveness",
            summary="Whether the server answers; the same as /healthz",
            tag=_TAG,
            roles=PUBLIC,
            answers=plain,
        ),
        Operation(
            method="GET",
            path="/readyz",
            handler=health.ready,
            name="getReadiness",
            summary="Whether jobs are decided on, and if not, why",
            tag=_TAG,
            roles=PUBLIC,
            answers=plain,
            problems=[503],
        ),
        Operation(
            method="GET",
            path="/metrics",
            handler=health.metrics,
            name="getMetrics",
            summary="Figures for Prometheus",
            description="In its text format, version 0.0.4; docs/metrics-reference.md names them all.",
            tag=_TAG,
            roles=PUBLIC,
            answers=plain,
        ),
    ]
