"""The order of the log and of its leaders, event by event.

Rules: positions and versions have no gaps, an event id is there once; one leader per epoch; in a stream epochs never
go down, and every decision is of the epoch whose election is the stream's last (docs/adr/0005, 0012). More is not
promised: between a claim and the elections in the pools' streams, the leader before may still decide.
"""

from tests.dst.invariants.broken import Broken
from voda.events.envelope import Event
from voda.events.types import LEADERSHIP, JobBackedOff, JobQueueLevelChanged, LeaderElected, PlanAdopted


class Order:
    """Reads the log as it grows."""

    def __init__(self) -> None:
        self.position = 0
        self.leaders: dict[int, str] = {}
        """Epoch -> who led in it."""
        self._versions: dict[str, int] = {}
        self._epochs: dict[str, int] = {}
        self._elected: dict[str, int] = {}
        """Stream of decisions -> epoch of its last election."""
        self._electors: dict[str, str] = {}
        """Stream of decisions -> who appended that election."""
        self._ids: dict[str, int] = {}

    def see(self, event: Event, by: str = "") -> None:
        """Take in the next event.

        Args:
            event: as it lies in the log.
            by: incarnation that appended it, such as `r0.2`; empty where that is not known.

        Raises:
            Broken: it cannot be there.
        """
        self._place(event)
        if isinstance(event.data, LeaderElected):
            self._elect(event, event.data, by)
        elif isinstance(event.data, PlanAdopted | JobQueueLevelChanged | JobBackedOff):
            self._decide(event, by)

    def _place(self, event: Event) -> None:
        if event.position != self.position + 1:
            raise Broken("order", f"position {self.position + 1} was to follow, got {event.position}")
        if event.version != (expected := self._versions.get(event.stream, 0) + 1):
            raise Broken("order", f"stream {event.stream}: version {expected} was to follow, got {event.version}")
        if (first := self._ids.setdefault(event.event_id, event.position)) != event.position:
            raise Broken("once", f"{event.type} of id {event.event_id} is at position {first} and at {event.position}")
        if event.epoch < (epoch := self._epochs.get(event.stream, 0)):
            raise Broken("epochs", f"stream {event.stream}: {event.type} of epoch {event.epoch} follows epoch {epoch}")
        self.position = event.position
        self._versions[event.stream] = event.version
        self._epochs[event.stream] = event.epoch

    def _elect(self, event: Event, fact: LeaderElected, by: str) -> None:
        if event.epoch <= 0:
            raise Broken("one leader", f"{fact.leader} was elected in epoch {event.epoch}, expected 1 or more")
        if (leader := self.leaders.setdefault(event.epoch, fact.leader)) != fact.leader:
            raise Broken("one leader", f"epoch {event.epoch} is led by {leader} and by {fact.leader}")
        if event.epoch <= (before := self._elected.get(event.stream, 0)):
            where = "claimed" if event.stream == LEADERSHIP else f"begun in {event.stream}"
            raise Broken("one leader", f"epoch {event.epoch} was {where} after epoch {before}")
        self._elected[event.stream] = event.epoch
        self._electors[event.stream] = by

    def _decide(self, event: Event, by: str) -> None:
        elected = self._elected.get(event.stream, 0)
        if event.epoch != elected:
            raise Broken("fenced", f"{event.type} of epoch {event.epoch} in {event.stream}, where {elected} leads")
        if by != (elector := self._electors.get(event.stream, "")):
            raise Broken("fenced", f"{event.type} of epoch {elected} was decided by {by}, and {elector} leads in it")
