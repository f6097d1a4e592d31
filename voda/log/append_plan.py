"""Plans a group of appends: the rows to write, the new heads, and one outcome for each append. Pure; all stores use it.

Rule: appends take effect in the order of arrival, each whole or not at all, and one that fails does not affect the
others.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from voda.domain.errors import Fenced, InvalidInput, VersionConflict
from voda.events.codec import EventBody, body_of, encode_body, head_after
from voda.events.envelope import ANY_VERSION, Fact, Head, Sealed, hash_of

_EMPTY = Head()
_MAX_EPOCH = 2**63 - 1


class Append(NamedTuple):
    """One call of EventStore.append."""

    stream: str
    expected_version: int
    facts: Sequence[Fact]
    epoch: int


EventRow = tuple[int, str, int, str, str, float, bytes, str]
"""An event as stored: position, stream, version, event id, type, recorded at, body, hash.

A plain tuple, because SQLite inserts no other record as fast.
"""
_ID_AND_POSITION = itemgetter(3, 0)

HeadRow = tuple[str, int, str, int, int]
"""The head of a stream as stored: stream, version, hash, epoch, position."""

Outcome = int | Exception
"""Position of the append's last fact, or the error because of which nothing of it is recorded."""


class GroupPlan(NamedTuple):
    """The rows to write for a group of appends, and the answer to each append once the rows are durable."""

    rows: list[EventRow]
    heads: dict[str, Head]
    """The new heads of all streams that grew."""
    outcomes: list[Outcome]

    def head_rows(self) -> list[HeadRow]:
        ends = {row[1]: row[0] for row in self.rows}
        return [(stream, head.version, head.hash, head.epoch, ends[stream]) for stream, head in self.heads.items()]

    @property
    def has_failures(self) -> bool:
        return any(isinstance(outcome, Exception) for outcome in self.outcomes)


def refuse_unstorable(append: Append) -> None:
    """Raise InvalidInput for what some database cannot store (NUL, half a character): it would fail its whole group."""
    names = "".join([append.stream, *[fact.event_id for fact in append.facts]])
    if "\0" in names or not _is_encodable(names):
        raise InvalidInput(f"stream {append.stream!a}: a name holds a character that cannot be stored")
    if not 0 <= append.epoch <= _MAX_EPOCH:
        raise InvalidInput(f"stream {append.stream}: expected an epoch of 0 to {_MAX_EPOCH}, got {append.epoch}")


def _is_encodable(names: str) -> bool:
    try:
        names.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_append(stream: str, head: Head, expected_version: int, epoch: int) -> None:
    """Raise Fenced or VersionConflict unless a writer of `epoch` that expects that version may append after `head`."""
    if epoch < head.epoch:
        raise Fenced(f"stream {stream}: epoch {epoch} was followed by epoch {head.epoch}; this leader must stop")
    if expected_version not in (ANY_VERSION, head.version):
        raise VersionConflict(f"stream {stream}: expected version {expected_version}, got {head.version}")


def plan_group(
    group: Sequence[Append], *, position: int, heads: Mapping[str, Head], known: Mapping[str, int]
) -> GroupPlan:
    """Return the plan by which all appends of the group take effect one after the other.

    Args:
        position: of the log's last event.
        heads: of the streams that the group appends to; a stream that is not in it is empty.
        known: event id -> position, of the facts that the log has already.
    """
    plan = GroupPlan([], {}, [])
    recorded = dict(known)
    for append in group:
        head = plan.heads.get(append.stream) or heads.get(append.stream, _EMPTY)
        try:
            rows, head = seal_batch(append, head, position=position, recorded=recorded)
        except Exception as error:  # the answer to this append alone
            plan.outcomes.append(error)
            continue
        if rows:
            position += len(rows)
            plan.rows.extend(rows)
            plan.heads[append.stream] = head
            recorded.update(map(_ID_AND_POSITION, rows))
        plan.outcomes.append(recorded[append.facts[-1].event_id])
    return plan


def seal_batch(
    append: Append, head: Head, *, position: int, recorded: Mapping[str, int]
) -> tuple[list[EventRow], Head]:
    """Return the events that one append adds to its stream, and the head they lead to.

    Args:
        append: its facts whose event id is in `recorded` add nothing.
        position: of the log's last event.
        recorded: event id -> position.

    Raises:
        VersionConflict, Fenced: see check_append; not raised if no fact is new.
        InvalidInput: a fact cannot be sealed.
        ValueError: the append has no facts.
    """
    stream, expected_version, facts, epoch = append
    if not facts:
        raise ValueError(f"stream {stream}: an append needs at least one fact")
    # Two facts with one id are the same fact, recorded once.
    new = {fact.event_id: fact for fact in facts if fact.event_id not in recorded}
    if not new:
        return [], head
    check_append(stream, head, expected_version, epoch)
    version, prev = head.version, head.hash
    rows: list[EventRow] = []
    for event_id, fact in new.items():
        position += 1
        version += 1
        body = encode_body(fact, stream=stream, version=version, prev=prev, epoch=epoch)
        prev = hash_of(body)
        rows.append((position, stream, version, event_id, fact.data.TYPE, fact.recorded_at, body, prev))
    return rows, Head(version, prev, epoch)


def plan_copy(events: Iterable[Sealed]) -> GroupPlan:
    """Return the plan that copies the first events of a log, whose hashes are not checked, to an empty one."""
    plan = GroupPlan([], {}, [])
    for sealed in events:
        body = body_of(sealed)
        plan.heads[body.stream] = head_after(sealed, body, plan.heads.get(body.stream, _EMPTY))
        plan.rows.append(row_of(sealed, body))
    return plan


def row_of(sealed: Sealed, body: EventBody) -> EventRow:
    """Return the row of an event from another log."""
    recorded_at = body.recorded_at.timestamp()
    return (
        sealed.position,
        body.stream,
        body.version,
        body.event_id,
        body.type,
        recorded_at,
        sealed.body,
        sealed.hash,
    )
