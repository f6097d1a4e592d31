"""What the API is given to work with; built by the composition root, or by a test from memory adapters.

Rule: routes reach the world through this record alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from voda.application.read_model import ReadModel
from voda.auth.tokens import Authenticator
from voda.clock import Clock
from voda.cluster.port import Outputs
from voda.log.store import EventStore
from voda.manifests.parse import ACCELERATOR
from voda.manifests.parsed import Omission
from voda.manifests.read.size_limits import MOST_BYTES
from voda.metrics import NO_TELEMETRY, Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """What one caller may ask for."""

    body_bytes: int = MOST_BYTES
    jobs_per_user: int = 1_000
    """Live ones; admins may have more."""
    request_s: float = 30.0
    """Longest time for a request to arrive in full, and for an answer that is not a stream to be taken."""
    connections: int = 500
    """At a time, of all callers: each costs a file, of which a process often may have 1,024, and jobs need some too."""
    idle_s: float = 60.0
    """A connection that asks nothing is closed after this."""
    heartbeat_s: float = 15.0
    """A stream that has nothing to say says so this often, so that both sides learn when the other is gone."""


def nothing_omitted(_manifest: Mapping[str, Any]) -> Sequence[Omission]:
    """Tell of a cluster that honours every part of a manifest."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The ports behind the API."""

    store: EventStore
    clock: Clock
    view: ReadModel
    access: Authenticator
    pools: Sequence[str]
    """To which jobs can be submitted; the first is the default."""
    pool_label: str = ACCELERATOR
    """Of nodes: a job that selects its nodes by it goes to the pool of that name."""
    outputs: Mapping[str, Outputs] = field(default_factory=dict)
    """pool -> what its jobs print."""
    omissions: Callable[[Mapping[str, Any]], Sequence[Omission]] = nothing_omitted
    """What of a manifest the cluster behind does not honour."""
    not_ready: Callable[[], str] = str
    """Why the service is not ready, one sentence; empty when it is."""
    limits: CallerLimits = CallerLimits()
    telemetry: Telemetry = NO_TELEMETRY
    exposition: Callable[[], bytes] = bytes
    """Returns what telemetry took, as Prometheus reads it."""
