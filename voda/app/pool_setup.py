"""Sets a pool up, the same for every cluster: records its first settings, and builds its loop over the log.

Rule: a setting that the log has already is not recorded again; a start without options changes nothing.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from voda.clock import Clock
from voda.cluster.port import Cluster
from voda.controller.controller import Controller
from voda.controller.instrumented import timed_placers, timed_policies
from voda.controller.pool_loop import PoolLoop
from voda.domain.state import Settings
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import PolicyChanged, RatelimitChanged
from voda.log.store import EventStore
from voda.metrics import Telemetry
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.policies.toolkit.parameters import Parameters, changed_parameters
from voda.projections.live import Live, LiveCluster
from voda.reconcilers.watcher import Watcher
from voda.reconcilers.workers import WorkerReconciler

CONCURRENCY: Final = 16
"""Jobs of a remote cluster whose actions are under way at a time."""
_SPANS: Final = ("node_grace_s", "start_timeout_s", "reclaim_grace_s")


class RequestedSettings(Struct, frozen=True, kw_only=True):
    """Settings of a pool that the operator gave at the start; None = as the log has them."""

    policy: str | None = None
    placer: str | None = None
    ratelimit_s: float | None = None
    node_grace_s: float | None = None
    start_timeout_s: float | None = None
    reclaim_grace_s: float | None = None
    parameters: Parameters = {}
    """Of policies, checked; those that are left out stay."""


class FirstSettings(Struct, frozen=True, kw_only=True):
    """Settings of a pool that the log does not know; None = the defaults."""

    resize_cost_s: float | None = None
    ratelimit_s: float | None = None


ON_ONE_MACHINE: Final = FirstSettings(resize_cost_s=5.0, ratelimit_s=5.0)
"""On one machine processes restart in seconds, pods in a minute; assumed until measured. So plans may follow sooner."""


async def record_settings(  # noqa: PLR0913 - where, for whom, and what
    store: EventStore,
    clock: Clock,
    live: LiveCluster,
    pool: str,
    requested: RequestedSettings,
    beginning: FirstSettings,
    *,
    actor: str,
) -> int:
    """Record the settings that the pool does not have yet, and return the log's position.

    Raises:
        InvalidInput: there is no such policy or placer.
    """
    facts = [
        Fact(data=data, event_id=clock.new_id(), recorded_at=clock.now(), actor=actor)
        for data in _changes(live, pool, requested, beginning)
    ]
    if not facts:
        return live.position
    return await store.append(f"settings.{pool}", ANY_VERSION, facts)


def _changes(
    live: LiveCluster, pool: str, requested: RequestedSettings, beginning: FirstSettings
) -> Iterator[PolicyChanged | RatelimitChanged]:
    is_new = pool not in live.pools()
    now = Settings() if is_new else live.settings(pool)
    chosen = None if requested.policy in (None, now.policy) else POLICIES.choose(requested.policy or "").name
    placing = None if requested.placer in (None, now.placer) else PLACERS.choose(requested.placer or "").name
    parameters = changed_parameters(requested.parameters, now)
    spans = {name: span_s for name in _SPANS if (span_s := getattr(requested, name)) not in (None, getattr(now, name))}
    if is_new or chosen or placing or parameters or spans:
        cost_s = beginning.resize_cost_s if is_new else None
        yield PolicyChanged(
            pool=pool,
            policy=chosen,
            placer=placing,
            parameters=parameters,
            resize_cost_s=cost_s,
            **spans,
        )
    ratelimit_s = requested.ratelimit_s
    if ratelimit_s is None and is_new:
        ratelimit_s = beginning.ratelimit_s
    if ratelimit_s not in (None, now.ratelimit_s):
        yield RatelimitChanged(pool=pool, ratelimit_s=ratelimit_s or 0.0)


def pool_loop(  # noqa: PLR0913 - its ports
    pool: str,
    cluster: Cluster,
    *,
    store: EventStore,
    clock: Clock,
    telemetry: Telemetry,
    at_once: int = 1,
    folded: Live | None = None,
) -> PoolLoop:
    """Return the loop of a pool, which leads nothing yet.

    Args:
        pool: its name.
        cluster: of the pool.
        store: the log.
        clock: of the service.
        telemetry: of the service.
        at_once: jobs whose actions are under way at a time.
        folded: see Controller.
    """
    watcher = pool_watcher(pool, store, clock)
    return PoolLoop(
        clock=clock,
        cluster=cluster,
        controller=_controller(pool, store, clock, telemetry, folded),
        reconciler=WorkerReconciler(
            cluster=cluster,
            watcher=watcher,
            clock=clock,
            telemetry=telemetry,
            concurrency=at_once,
        ),
        watcher=watcher,
        telemetry=telemetry,
    )


def _controller(pool: str, store: EventStore, clock: Clock, telemetry: Telemetry, folded: Live | None) -> Controller:
    return Controller(
        pool=pool,
        store=store,
        clock=clock,
        policies=timed_policies(POLICIES.choose, telemetry, pool),
        placers=timed_placers(PLACERS.choose, telemetry, pool),
        telemetry=telemetry,
        initial=folded,
    )


def pool_watcher(pool: str, store: EventStore, clock: Clock) -> Watcher:
    """Return the watcher that records what is observed of a pool's cluster."""
    return Watcher(store=store, clock=clock, actor=f"cluster/{pool}")
