"""Builders of test data: each takes what the test is about and fills in the rest."""

from typing import Any

from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.codec import seal, unseal
from voda.events.envelope import Event, Fact, Head
from voda.events.types import AnyFact


def a_spec(job_id: str = "a", **fields: Any) -> JobSpec:
    """Return a spec; by default of one rigid worker."""
    return JobSpec(job_id=job_id, **fields)


def a_node(name: str = "n1", **fields: Any) -> Node:
    """Return a node; by default of four free GPUs."""
    return Node(name=name, **{"gpus": 4, **fields})


class Log:
    """Events as a store would give them, made one by one without a store."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._heads: dict[str, Head] = {}

    def add(self, data: AnyFact, *, at: float, actor: str = "test") -> Event:
        """Record a fact and return its event."""
        position = len(self.events) + 1
        fact = Fact(data=data, event_id=f"e{position}", recorded_at=float(at), actor=actor)
        head = self._heads.get(data.stream, Head())
        sealed = seal(fact, stream=data.stream, head=head, epoch=0, position=position)
        self._heads[data.stream] = Head(head.version + 1, sealed.hash)
        event = unseal(sealed)
        self.events.append(event)
        return event

    def until(self, position: int) -> "Log":
        """Return a log of the events up to a position."""
        log = Log()
        log.events = self.events[:position]
        return log
