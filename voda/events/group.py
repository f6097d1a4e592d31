"""What a group of appends becomes: rows, new heads and one outcome each. Pure; every store decides by it.

Rule: appends take effect in the order they arrived, each whole or not at all, and one that fails leaves its
neighbours as if it had never been there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from voda.domain.errors import Fenced, VersionConflict
from voda.events.codec import body_of, head_after, seal
from voda.events.envelope import ANY_VERSION, Fact, Head, Sealed

_EMPTY = Head()


class Append(NamedTuple):
    """One call of EventStore.append."""

    stream: str
    expected_version: int
    facts: Sequence[Fact]
    epoch: int


class EventRow(NamedTuple):
    """An event as stored: the sealed body and, beside it, what a store looks events up by."""

    position: int
    stream: str
    version: int
    event_id: str
    type: str
    recorded_at: float
    body: bytes
    hash: str


Outcome = int | Exception
"""Position of the append's last fact, or why nothing of it is recorded."""


class GroupPlan(NamedTuple):
    """What to write for a group of appends, and what to answer each once that is durable."""

    rows: list[EventRow]
    heads: dict[str, Head]
    """Streams that grew, with their new heads."""
    outcomes: list[Outcome]

    @property
    def has_failures(self) -> bool:
        """Whether an append of the group was refused."""
        return any(isinstance(outcome, Exception) for outcome in self.outcomes)


def check_append(stream: str, head: Head, expected_version: int, epoch: int) -> None:
    """Raise unless a writer of `epoch`, who expects `expected_version`, may append after `head`.

    Raises:
        Fenced: the stream has seen a higher epoch.
        VersionConflict: the stream is at another version.
    """
    if epoch < head.epoch:
        raise Fenced(f"stream {stream}: epoch {epoch} was followed by epoch {head.epoch}; this leader must stop")
    if expected_version not in (ANY_VERSION, head.version):
        raise VersionConflict(f"stream {stream}: expected version {expected_version}, got {head.version}")


def plan_group(
    group: Sequence[Append], *, position: int, heads: Mapping[str, Head], known: Mapping[str, int]
) -> GroupPlan:
    """Return what to write, so that all appends of the group take effect one after the other.

    Args:
        group: in order of arrival.
        position: position of the log's last event.
        heads: heads of the streams that the group appends to; a stream not in it is empty.
        known: event id -> position, of those facts of the group that the log holds already.
    """
    plan = GroupPlan([], {}, [])
    recorded = dict(known)
    for append in group:
        head = plan.heads.get(append.stream) or heads.get(append.stream, _EMPTY)
        try:
            batch, head = seal_batch(append, head, position=position, recorded=recorded)
        except Exception as error:  # handed to the one who appended; the neighbours must not suffer
            plan.outcomes.append(error)
            continue
        if batch:
            position += len(batch)
            plan.rows.extend(batch)
            plan.heads[append.stream] = head
            recorded.update((row.event_id, row.position) for row in batch)
        plan.outcomes.append(recorded[append.facts[-1].event_id])
    return plan


def seal_batch(
    append: Append, head: Head, *, position: int, recorded: Mapping[str, int]
) -> tuple[list[EventRow], Head]:
    """Return the events that one append adds to its stream, and the head they lead to.

    Args:
        append: its facts whose event id is in `recorded` add nothing.
        head: of the append's stream.
        position: position of the log's last event.
        recorded: event id -> position.

    Raises:
        VersionConflict, Fenced: see check_append; not asked when nothing is new.
        InvalidInput: a fact cannot be sealed.
        ValueError: the append has no facts.
    """
    stream, expected_version, facts, epoch = append
    if not facts:
        raise ValueError(f"stream {stream}: an append needs at least one fact")
    new: dict[str, Fact] = {}
    for fact in facts:
        if fact.event_id not in recorded:
            new.setdefault(fact.event_id, fact)
    batch: list[EventRow] = []
    if new:
        check_append(stream, head, expected_version, epoch)
    for event_id, fact in new.items():
        position += 1
        sealed = seal(fact, stream=stream, head=head, epoch=epoch, position=position)
        head = Head(head.version + 1, sealed.hash, epoch)
        batch.append(
            EventRow(
                position, stream, head.version, event_id, fact.data.TYPE, fact.recorded_at, sealed.body, sealed.hash
            )
        )
    return batch, head


def taken_over(events: Iterable[Sealed]) -> GroupPlan:
    """Return what to write to an empty log for the first events of another, as they are.

    Args:
        events: from position 1 on; they are not proven here.

    Raises:
        LogDamaged: the bytes are not an event.
    """
    plan = GroupPlan([], {}, [])
    for sealed in events:
        body = body_of(sealed)
        plan.heads[body.stream] = head_after(sealed, body, plan.heads.get(body.stream, _EMPTY))
        at = body.recorded_at.timestamp()
        plan.rows.append(
            EventRow(sealed.position, body.stream, body.version, body.event_id, body.type, at, sealed.body, sealed.hash)
        )
    return plan
