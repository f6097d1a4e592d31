"""Plans a group of appends: the rows to write, the new heads, and one outcome for each append. Pure; all stores use it.

Rule: appends take effect in the order of arrival, each whole or not at all, and one that fails does not affect the
others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    others: tuple["Append", ...] = ()
    """Appends to other streams that take effect with this one, all or none; they have no others themselves."""


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


def together(appends: Sequence[Append]) -> Append:
    """Return the one append by which all of these take effect, or none; at least one, each of another stream."""
    if not appends:
        raise ValueError("an append needs at least one fact")
    first, *others = appends
    return first._replace(others=tuple(others)) if others else first


def parts_of(group: Iterable[Append]) -> Iterator[Append]:
    """Yield the appends of a group, each followed by those that take effect with it."""
    for append in group:
        yield append
        yield from append.others


def refuse_unstorable(append: Append) -> None:
    """Raise InvalidInput for what some database cannot store (NUL, half a character): it would fail its whole group."""
    for other in append.others:
        refuse_unstorable(other)
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
        try:
            rows, grown = seal_together(
                append, lambda stream: plan.heads.get(stream) or heads.get(stream, _EMPTY), position, recorded
            )
        except Exception as error:  # the answer to this append alone
            plan.outcomes.append(error)
            continue
        if rows:
            position += len(rows)
            plan.rows.extend(rows)
            plan.heads.update(grown)
            recorded.update(map(_ID_AND_POSITION, rows))
        plan.outcomes.append(max(recorded[part.facts[-1].event_id] for part in parts_of([append])))
    return plan


def seal_together(
    append: Append, head_of: Callable[[str], Head], position: int, recorded: Mapping[str, int]
) -> tuple[list[EventRow], dict[str, Head]]:
    """Return the events that an append and its others add, and the new heads; see seal_batch."""
    if not append.others:
        rows, head = seal_batch(append, head_of(append.stream), position=position, recorded=recorded)
        return rows, {append.stream: head} if rows else {}
    found: list[EventRow] = []
    heads: dict[str, Head] = {}
    ids = (fact.event_id for part in parts_of([append]) for fact in part.facts)
    known = {event_id: recorded[event_id] for event_id in ids if event_id in recorded}
    for part in parts_of([append]):
        head = heads.get(part.stream) or head_of(part.stream)
        rows, head = seal_batch(part, head, position=position + len(found), recorded=known)
        if rows:
            found += rows
            heads[part.stream] = head
            known.update(map(_ID_AND_POSITION, rows))
    return found, heads


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
    stream, expected_version, facts, epoch, _ = append
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
