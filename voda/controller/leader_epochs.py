"""The epochs of leaders, which the log hands out.

Rules: a leader claims an epoch in the log before it does anything in it; the store gives each epoch to one claimant
only, whatever happens to the lease. A log belongs to the cluster of its first claim: in another cluster its jobs have
no objects, so that all of them would count as deleted.
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
    """Epochs of one log; `cluster` returns the id of the present cluster, empty where it has none."""

    def __init__(self, store: EventStore, clock: Clock, cluster: Callable[[], Awaitable[str]] | None = None) -> None:
        self._store = store
        self._clock = clock
        self._cluster = cluster

    async def highest(self) -> int:
        """Return the highest epoch of any claim or decision; 0 in a log without leaders."""
        heads = await self._store.heads()
        led = (head.epoch for stream, head in heads.items() if stream == LEADERSHIP or stream.startswith(_FAMILY))
        return max(led, default=0)

    async def claim(self, epoch: int, leader: str) -> None:
        """Record that the epoch belongs to the leader.

        Raises:
            Fenced: another leader has it, or the log has a higher one.
            InvalidInput: the log belongs to another cluster.
            ClusterUnavailable: the cluster did not return its id.
        """
        cluster = await self._cluster() if self._cluster is not None else ""
        if cluster and (owner := await self._owner()) not in ("", cluster):
            raise InvalidInput(
                f"the log belongs to another cluster ({owner}; this one is {cluster}): its jobs would be canceled"
                " there or here; give each cluster a log of its own (--log, or log: in the settings)"
            )
        head = await self._store.head(LEADERSHIP)
        if head.epoch >= epoch:
            raise Fenced(f"{leader} cannot claim epoch {epoch}: epoch {head.epoch} is claimed already")
        fact = Fact(
            data=LeaderElected(pool="", leader=leader, cluster=cluster),
            event_id=self._clock.new_id(),
            recorded_at=self._clock.now(),
            actor=leader,
        )
        try:
            await self._store.append(LEADERSHIP, head.version, [fact], epoch=epoch)
        except VersionConflict as error:
            raise Fenced(f"{leader} cannot claim epoch {epoch}: another leader was faster") from error

    async def _owner(self) -> str:
        """Return the cluster of the first claim; empty where no claim within reach names one."""
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
            # Every claim names the same cluster, so a later one will do: a pod may not reach the archive.
            return await self._store.read(error.base, _PAGE, stream=LEADERSHIP)
