"""The epochs of leaders, as the log knows them.

Rule: an epoch is claimed in the log before anything is done in it; the store gives each to one claimant only,
whatever became of the Lease meanwhile.
"""

from voda.clock import Clock
from voda.domain.errors import Fenced, VersionConflict
from voda.events.envelope import Fact
from voda.events.store import EventStore
from voda.events.types import LEADERSHIP, LeaderElected

_FAMILY = "decisions."


class Epochs:
    """Epochs of one log.

    Args:
        store: the log.
        clock: dates the claims.
    """

    def __init__(self, store: EventStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def highest(self) -> int:
        """Return the highest epoch that anybody claimed or decided in; 0 in a log without leaders."""
        heads = await self._store.heads()
        led = (head.epoch for stream, head in heads.items() if stream == LEADERSHIP or stream.startswith(_FAMILY))
        return max(led, default=0)

    async def claim(self, epoch: int, leader: str) -> None:
        """Record that the epoch is the leader's.

        Raises:
            Fenced: it is somebody else's, or a higher one is in the log.
        """
        head = await self._store.head(LEADERSHIP)
        if head.epoch >= epoch:
            raise Fenced(f"epoch {epoch} cannot be claimed by {leader}: epoch {head.epoch} was claimed before")
        fact = Fact(
            data=LeaderElected(pool="", leader=leader),
            event_id=self._clock.new_id(),
            recorded_at=self._clock.now(),
            actor=leader,
        )
        try:
            await self._store.append(LEADERSHIP, head.version, [fact], epoch=epoch)
        except VersionConflict as error:
            raise Fenced(f"epoch {epoch} cannot be claimed by {leader}: another one was faster") from error
