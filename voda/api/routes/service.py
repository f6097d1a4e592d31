"""The server itself: its version, its caller, whether it lives and is ready, and its metrics for Prometheus.

Rule: a look costs little: what is cheap may be asked every second, by anybody.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from msgspec.structs import asdict
from prometheus_client import CollectorRegistry, generate_latest

from voda import __version__
from voda.api.operation import PUBLIC, READERS, TEXT, Operation, Response, Routes
from voda.api.requests import json_response
from voda.application.journal import Journal
from voda.application.lookup import pool_names
from voda.auth.callers import Caller, CallerView
from voda.domain.errors import TransientError, VodaError
from voda.metrics import Telemetry
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.telemetry.cell_gauges import CellGauges
from voda.telemetry.gauges import StateGauges
from voda.telemetry.job_counters import JobCounters
from voda.telemetry.prometheus import CONTENT_TYPE
from voda.telemetry.share_gauges import ShareGauges
from voda.wire.base import ServiceView

_STORE_S: Final = 2.0
"""How long a look at the log may take."""
_PLAIN: Final = (Response(media_type=TEXT),)


@dataclass
class ServiceRoutes(Routes):
    """The operations on the server."""

    tag = "Service"

    journal: Journal
    pools: Sequence[str]
    gpu_resource: str
    telemetry: Telemetry
    exposition: Callable[[], bytes]
    not_ready: Callable[[], str]
    health_warning: Callable[[], str]

    def __post_init__(self) -> None:
        view = self.journal.view
        self._counters = JobCounters(self.telemetry, view.job_registry)
        self._gauges = StateGauges(self.journal, self.pools, self.not_ready)
        self._cell_gauges = CellGauges(view, self.pools)
        self._share_gauges = ShareGauges(view, self.pools)
        self._registry = CollectorRegistry()
        self._registry.register(self._gauges)
        self._registry.register(self._cell_gauges)
        self._registry.register(self._share_gauges)
        view.subscribe(self._counters.see)

    @Operation("GET", "/api/v1", answers=[Response(of=ServiceView)])
    async def get_page(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get the version, the pools, and how far the log is read."""
        names, position = tuple(pool_names(self.pools, self.journal.view)), self.journal.view.position
        page = ServiceView(
            version=__version__,
            pools=names,
            position=position,
            policies=tuple(POLICIES),
            placers=tuple(PLACERS),
            gpu_resource=self.gpu_resource,
        )
        return json_response(page)

    @Operation("GET", "/api/v1/whoami", roles=READERS | {"job"}, answers=[Response(of=CallerView)])
    async def who_am_i(self, _request: web.Request, caller: Caller) -> web.StreamResponse:
        """Get whom the server takes you for, and what is wrong with it though it works."""
        return json_response(CallerView(**asdict(caller), warning=self.health_warning()))

    @Operation("GET", "/healthz", roles=PUBLIC, answers=_PLAIN)
    async def get_health(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Whether the server answers."""
        return web.Response(text="ok\n")

    @Operation("GET", "/livez", roles=PUBLIC, answers=_PLAIN)
    async def get_liveness(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Whether the server answers; the same as /healthz."""
        return web.Response(text="ok\n")

    @Operation("GET", "/readyz", roles=PUBLIC, answers=_PLAIN, problems=[503])
    async def get_readiness(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Whether jobs are decided on, and if not, why; a second line warns of a damaged log or silent nodes."""
        if reason := self.not_ready():
            raise TransientError(f"not ready: {reason}")
        warning = self.health_warning()
        return web.Response(text=f"ready\nwarning: {warning}\n" if warning else "ready\n")

    @Operation(
        "GET",
        "/metrics",
        description="In its text format, version 0.0.4; docs/metrics-reference.md names them all.",
        roles=PUBLIC,
        answers=_PLAIN,
    )
    async def get_metrics(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Figures for Prometheus."""
        self._counters.settle()
        with suppress(VodaError, TimeoutError):
            async with asyncio.timeout(_STORE_S):
                await self._measure_lag()
        await self._cell_gauges.refresh()
        await self._share_gauges.refresh()
        body = self.exposition() + generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _measure_lag(self) -> None:
        """Find out how far the view is behind the log, others' appends included."""
        store, folded = self.journal.store, self.journal.view.position
        behind = await store.position() - folded
        self._gauges.lag_events, self._gauges.lag_s = max(0, behind), 0.0
        if behind > 0 and (oldest := await store.read(folded, 1)):
            self._gauges.lag_s = max(0.0, self.journal.clock.now() - oldest[0].recorded_at)
