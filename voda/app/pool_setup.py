"""Sets a pool up, the same for every cluster: records its first settings, and builds its loop over the log.

Rule: a setting that the log has already is not recorded again; a start without options changes nothing.
"""

from voda.application.change_settings import new_settings
from voda.clock import Clock
from voda.cluster.port import Cluster
from voda.controller.controller import Controller
from voda.controller.instrumented import timed_placers, timed_policies
from voda.controller.pool_loop import PoolLoop
from voda.domain.settings import Settings, SettingsPatch
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import SettingsChanged
from voda.log.store import EventStore
from voda.metrics import Telemetry
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.live import Live
from voda.reconcilers.watcher import Watcher


async def record_settings(  # noqa: PLR0913 - where, for whom, and what
    store: EventStore,
    clock: Clock,
    live: LiveCluster,
    pool: str,
    requested: SettingsPatch,
    first: SettingsPatch,
    *,
    actor: str,
) -> int:
    """Record what the operator asks for at the start and the pool does not have yet, and return the log's position.

    Args:
        store: the log.
        clock: of the service.
        live: the pools of the log.
        pool: whose settings they are.
        requested: what the pool is to have, checked; the others stay as the log has them.
        first: what a pool that the log does not know begins with, beside the defaults.
        actor: who asks for it.
    """
    is_new = pool not in live.pools()
    wanted = {**first, **requested} if is_new else requested
    new = new_settings(wanted, Settings() if is_new else live.settings(pool))
    if not (is_new or new):
        return live.position
    changed = SettingsChanged(pool=pool, settings=new)
    fact = Fact(data=changed, event_id=clock.new_id(), recorded_at=clock.now(), actor=actor)
    return await store.append(f"settings.{pool}", ANY_VERSION, [fact])


def pool_loop(  # noqa: PLR0913 - its ports
    pool: str,
    cluster: Cluster,
    *,
    store: EventStore,
    clock: Clock,
    telemetry: Telemetry,
    folded: Live | None = None,
) -> PoolLoop:
    """Return the loop of a pool, which leads nothing yet.

    Args:
        pool: its name.
        cluster: of the pool.
        store: the log.
        clock: of the service.
        telemetry: of the service.
        folded: see Controller.
    """
    return PoolLoop(
        clock=clock,
        cluster=cluster,
        controller=_controller(pool, store, clock, telemetry, folded),
        watcher=pool_watcher(pool, store, clock),
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
