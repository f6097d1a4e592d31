"""All that a decision reads: the live cluster, and what the jobs' reports taught about them.

Rule: a decision reads the log through `Live.state` only.
"""

from hashlib import sha256
from typing import ClassVar

import msgspec

from voda.domain.state import ClusterState
from voda.events.envelope import Event
from voda.projections.learning import Learning
from voda.projections.live_cluster import LiveCluster


class Live:
    """The projection that the controller decides from; snapshots hold its state."""

    FORMAT: ClassVar[str] = "live-3"
    """Name of its snapshots. Raise the number whenever the state of LiveCluster or Learning changes."""

    def __init__(self) -> None:
        self.cluster = LiveCluster()
        self.learning = Learning()

    @property
    def position(self) -> int:
        """Position of the last event folded."""
        return self.cluster.position

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        self.learning.apply(event)
        self.cluster.apply(event)

    def state(self, pool: str) -> ClusterState:
        """Return what a decision about the pool reads."""
        settings = self.cluster.settings(pool)
        estimate = self.learning.estimate
        estimates = {job_id: estimate(job, settings) for job_id, job in self.cluster.jobs(pool).items()}
        return self.cluster.state(pool, estimates)

    def dump(self) -> bytes:
        """Return the whole state; equal states give equal bytes."""
        return msgspec.msgpack.encode((self.cluster.dump(), self.learning.dump()))

    def load(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        cluster, learning = msgspec.msgpack.decode(state, type=tuple[bytes, bytes])
        self.cluster.load(cluster)
        self.learning.load(learning)

    def state_hash(self) -> str:
        """Return the SHA-256 of the state, 64 hexadecimal digits."""
        return sha256(self.dump()).hexdigest()
