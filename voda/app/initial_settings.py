"""Records the settings of a new pool, and those that the operator gave at the start.

Rule: a setting that the log has already is not recorded again; a start without options changes nothing.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from voda.clock import Clock
from voda.domain.state import Settings
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import PolicyChanged, RatelimitChanged
from voda.log.store import EventStore
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.projections.live import LiveCluster


class RequestedSettings(Struct, frozen=True, kw_only=True):
    """Settings of a pool that the operator gave at the start; None = as the log has them."""

    policy: str | None = None
    placer: str | None = None
    ratelimit_s: float | None = None


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
    wish: RequestedSettings,
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
        for data in _changes(live, pool, wish, beginning)
    ]
    if not facts:
        return live.position
    return await store.append(f"settings.{pool}", ANY_VERSION, facts)


def _changes(
    live: LiveCluster, pool: str, wish: RequestedSettings, beginning: FirstSettings
) -> Iterator[PolicyChanged | RatelimitChanged]:
    is_new = pool not in live.pools()
    now = Settings() if is_new else live.settings(pool)
    chosen = None if wish.policy in (None, now.policy) else POLICIES.choose(wish.policy or "").name
    placing = None if wish.placer in (None, now.placer) else PLACERS.choose(wish.placer or "").name
    if is_new or chosen or placing:
        cost_s = beginning.resize_cost_s if is_new else None
        yield PolicyChanged(pool=pool, policy=chosen, placer=placing, resize_cost_s=cost_s)
    ratelimit_s = wish.ratelimit_s
    if ratelimit_s is None and is_new:
        ratelimit_s = beginning.ratelimit_s
    if ratelimit_s not in (None, now.ratelimit_s):
        yield RatelimitChanged(pool=pool, ratelimit_s=ratelimit_s or 0.0)
