"""The epochs of leaders, as the log knows them.

Rules: an epoch is claimed in the log before anything is done in it; the store gives each to one claimant only,
whatever became of the Lease meanwhile. A log belongs to the cluster that it was first led for: in another one its jobs
have no objects, and would all be taken for deleted.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from voda.clock import Clock
from voda.domain.errors import Fenced, InvalidInput, LogArchived, VersionConflict
from voda.events.envelope import Event, Fact
from voda.events.types import LEADERSHIP, LeaderElected
from voda.log.store import EventStore

_FAMILY: Final = "decisions."
_PAGE: Final = 100


class LeaderEpochs:
    """Epochs of one log.

    Args:
        store: the log.
        clock: dates the claims.
        cluster: returns the id of the cluster that is led; empty where there is no telling.
    """

    def __init__(self, store: EventStore, clock: Clock, cluster: Callable[[], Awaitable[str]] | None = None) -> None:
        self._store = store
        self._clock = clock
        self._cluster = cluster

    async def highest(self) -> int:
        """Return the highest epoch that anybody claimed or decided in; 0 in a log without leaders."""
        heads = await self._store.heads()
        led = (head.epoch for stream, head in heads.items() if stream == LEADERSHIP or stream.startswith(_FAMILY))
        return max(led, default=0)

    async def claim(self, epoch: int, leader: str) -> None:
        """Record that the epoch is the leader's.

        Raises:
            Fenced: it is somebody else's, or a higher one is in the log.
            InvalidInput: the log belongs to another cluster.
            ClusterUnavailable: the cluster did not tell its id.
        """
        cluster = await self._cluster() if self._cluster is not None else ""
        if cluster and (owner := await self._owner()) not in ("", cluster):
            raise InvalidInput(
                f"the log belongs to another cluster ({owner}; this one is {cluster}): its jobs would be canceled"
                " there or here; give each cluster a log of its own (--log, or log: in the settings)"
            )
        head = await self._store.head(LEADERSHIP)
        if head.epoch >= epoch:
            raise Fenced(f"epoch {epoch} cannot be claimed by {leader}: epoch {head.epoch} was claimed before")
        fact = Fact(
            data=LeaderElected(pool="", leader=leader, cluster=cluster),
            event_id=self._clock.new_id(),
            recorded_at=self._clock.now(),
            actor=leader,
        )
        try:
            await self._store.append(LEADERSHIP, head.version, [fact], epoch=epoch)
        except VersionConflict as error:
            raise Fenced(f"epoch {epoch} cannot be claimed by {leader}: another one was faster") from error

    async def _owner(self) -> str:
        """Return the cluster that the log was first led for; empty where no claim that is at hand names one."""
        after = 0
        while events := await self._claims(after):
            for event in events:
                if isinstance(event.data, LeaderElected) and event.data.cluster:
                    return event.data.cluster
            after = events[-1].position
        return ""

    async def _claims(self, after: int) -> Sequence[Event]:
        try:
            return await self._store.read(after, _PAGE, stream=LEADERSHIP)
        except LogArchived as error:
            # Every claim names the cluster, and later ones name the same: a pod need not reach the archive for it.
            return await self._store.read(error.base, _PAGE, stream=LEADERSHIP)
