"""All that a decision reads: the pools as they are, and what reports taught."""

from hashlib import sha256
from typing import ClassVar

import msgspec

from voda.domain.state import ClusterState
from voda.events.envelope import Event
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.learning import Learning


class Live:
    """The projection that the controller decides from; snapshots hold its state."""

    FORMAT: ClassVar[str] = "live-32"
    """Name of its snapshots. Raise the number whenever the state of LiveCluster or Learning changes."""

    def __init__(self) -> None:
        self.cluster = LiveCluster()
        self.learning = Learning()

    @property
    def position(self) -> int:
        return self.cluster.position

    def apply(self, event: Event) -> None:
        self.learning.apply(event)
        self.cluster.apply(event)

    def state(self, pool: str) -> ClusterState:
        """Return what a decision about the pool reads."""
        cluster = self.cluster
        return cluster.state(pool, self.learning.estimates(pool, cluster.jobs(pool), cluster.settings(pool)))

    def dump(self) -> bytes:
        return msgspec.msgpack.encode((self.cluster.dump(), self.learning.dump()))

    def load(self, state: bytes) -> None:
        cluster, learning = msgspec.msgpack.decode(state, type=tuple[bytes, bytes])
        self.cluster.load(cluster)
        self.learning.load(learning)

    def state_hash(self) -> str:
        """Return the SHA-256 of the state, 64 hexadecimal digits."""
        return sha256(self.dump()).hexdigest()
