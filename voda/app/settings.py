"""Settings that a pool of this machine begins with, and those that `voda up` was told to change.

Rule: what the log says already is not written again; a start without options changes nothing.
"""

from collections.abc import Iterator
from typing import Final

from voda.app.options import Options
from voda.clock import Clock
from voda.domain.state import Settings
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.store import EventStore
from voda.events.types import PolicyChanged, RatelimitChanged
from voda.placement.registry import placer
from voda.policies.registry import policy
from voda.projections.cluster import LiveCluster

_RESIZE_COST_S: Final = 5.0
"""Processes of one machine restart in seconds, where pods take a minute; assumed until it is measured."""
_RATELIMIT_S: Final = 5.0
"""For the same reason a plan may follow the last one sooner."""


async def settle(store: EventStore, clock: Clock, live: LiveCluster, pool: str, options: Options) -> int:
    """Record the settings that `pool` does not have yet, and return the log's position.

    Raises:
        InvalidInput: there is no such policy or placer.
    """
    facts = [
        Fact(data=data, event_id=clock.new_id(), recorded_at=clock.now(), actor="up")
        for data in _changes(live, pool, options)
    ]
    if not facts:
        return live.position
    return await store.append(f"settings.{pool}", ANY_VERSION, facts)


def _changes(live: LiveCluster, pool: str, options: Options) -> Iterator[PolicyChanged | RatelimitChanged]:
    is_new = pool not in live.pools()
    now = Settings() if is_new else live.settings(pool)
    chosen = None if options.policy in (None, now.policy) else policy(options.policy or "").name
    placing = None if options.placer in (None, now.placer) else placer(options.placer or "").name
    if is_new or chosen or placing:
        cost_s = _RESIZE_COST_S if is_new else None
        yield PolicyChanged(pool=pool, policy=chosen, placer=placing, resize_cost_s=cost_s)
    ratelimit_s = options.ratelimit_s if options.ratelimit_s is not None else _RATELIMIT_S if is_new else None
    if ratelimit_s not in (None, now.ratelimit_s):
        yield RatelimitChanged(pool=pool, ratelimit_s=ratelimit_s or 0.0)
