"""Builds the loop of one pool, the same for every cluster: controller, reconciler and watcher over a log."""

from typing import Final

from voda.clock import Clock
from voda.cluster.port import Cluster
from voda.controller.controller import Controller
from voda.controller.instrumented import timed_placers, timed_policies
from voda.controller.pool_loop import PoolLoop
from voda.log.store import EventStore
from voda.metrics import Telemetry
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.projections.live import Live
from voda.reconcilers.watcher import Watcher
from voda.reconcilers.workers import WorkerReconciler

CONCURRENCY: Final = 16
"""Jobs of a remote cluster whose actions are under way at a time."""
_JITTER: Final = 0.25
"""Share by which retries of jobs that failed together are spread."""


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
        controller=Controller(
            pool=pool,
            store=store,
            clock=clock,
            policies=timed_policies(POLICIES.choose, telemetry, pool),
            placers=timed_placers(PLACERS.choose, telemetry, pool),
            telemetry=telemetry,
            initial=folded,
        ),
        reconciler=WorkerReconciler(
            cluster=cluster,
            watcher=watcher,
            clock=clock,
            telemetry=telemetry,
            concurrency=at_once,
            jitter=_JITTER,
        ),
        watcher=watcher,
        telemetry=telemetry,
    )


def pool_watcher(pool: str, store: EventStore, clock: Clock) -> Watcher:
    """Return the watcher that records the observations of a pool's cluster."""
    return Watcher(store=store, clock=clock, actor=f"cluster/{pool}")
