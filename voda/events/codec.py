"""Encodes facts to the bytes of an event, and decodes them. Only this module knows the form of an event in the log.

Rules: a sealed body is never encoded again; it is stored and copied byte for byte. Once voda is released, a schema that
is raised gets an upcaster, which is never removed.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
from msgspec import Raw, Struct

from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew
from voda.events.envelope import Event, Fact, Head, Sealed
from voda.events.records import Data
from voda.events.types import AnyFact

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: dict[tuple[str, int], Upcaster] = {}
"""(type, schema) -> what makes the decoded data those of schema + 1."""

_FACTS: dict[str, type[Data]] = {fact.TYPE: fact for fact in get_args(AnyFact)}
_DECODERS = {(fact.TYPE, fact.SCHEMA): msgspec.json.Decoder(fact) for fact in _FACTS.values()}
_encode = msgspec.json.Encoder(order=None).encode
_from_timestamp = datetime.fromtimestamp


class EventBody(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The stored form of an event, without its position, which only the store knows."""

    stream: str
    version: int
    event_id: str
    type: str
    schema: int
    recorded_at: datetime
    prev: str
    actor: str = ""
    correlation_id: str = ""
    causation_id: str = ""
    epoch: int = 0
    data: Raw


_decode_body = msgspec.json.Decoder(EventBody).decode


def encode_body(fact: Fact, *, stream: str, version: int, prev: str, epoch: int) -> bytes:
    """Return the stored form of a fact that follows the event of hash `prev` in `stream`.

    Raises:
        InvalidInput: JSON cannot represent the fact (NaN, infinity, a lone surrogate), or its time is out of range.
    """
    fact_data = fact.data
    try:
        data = _encode(fact_data)
        if b"null" in data:
            _refuse_lossy(fact)
        return _encode(
            EventBody(
                stream=stream,
                version=version,
                event_id=fact.event_id,
                type=fact_data.TYPE,
                schema=fact_data.SCHEMA,
                recorded_at=_from_timestamp(fact.recorded_at, UTC),
                prev=prev,
                actor=fact.actor,
                correlation_id=fact.correlation_id,
                causation_id=fact.causation_id,
                epoch=epoch,
                data=Raw(data),
            )
        )
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(f"{fact_data.TYPE} {fact.event_id!a} cannot be encoded: {error}") from error


def body_of(sealed: Sealed) -> EventBody:
    """Return the stored form of an event, its data still raw; raise LogDamaged where the bytes are none."""
    try:
        return _decode_body(sealed.body)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"position {sealed.position}: not an event ({error})", sealed.position) from error


def unseal(sealed: Sealed) -> Event:
    """Return the event, upcast to the current schema.

    Raises:
        LogDamaged: the bytes are not what was written.
        LogTooNew: the type or schema is unknown to this version.
    """
    if not sealed.is_intact:
        raise LogDamaged(f"position {sealed.position}: the checksum does not fit the event", sealed.position)
    body = body_of(sealed)
    decoder = _DECODERS.get((body.type, body.schema))
    try:
        data = decoder.decode(body.data) if decoder else _upcast(body, sealed.position)
    except msgspec.MsgspecError as error:
        raise LogDamaged(
            f"position {sealed.position}: {body.type} does not fit its schema {body.schema} ({error})",
            sealed.position,
        ) from error
    return Event(
        position=sealed.position,
        stream=body.stream,
        version=body.version,
        event_id=body.event_id,
        type=data.TYPE,
        schema=body.schema,
        recorded_at=body.recorded_at.timestamp(),
        actor=body.actor,
        correlation_id=body.correlation_id,
        causation_id=body.causation_id,
        epoch=body.epoch,
        data=data,  # type: ignore[arg-type]  # one of AnyFact, by construction of _DECODERS
    )


def head_after(sealed: Sealed, body: EventBody, before: Head) -> Head:
    """Return the head of the stream with this event as its last."""
    return Head(body.version, sealed.hash, max(body.epoch, before.epoch))


def refuse_newer(body: EventBody, position: int) -> type[Data]:
    """Return the class of a body's fact; raise LogTooNew where this version does not know the type or schema."""
    fact = _FACTS.get(body.type)
    if fact is None or body.schema > fact.SCHEMA:
        raise LogTooNew(
            f"position {position} holds {body.type!r} in schema {body.schema}, which this voda does not know:"
            " it was written by a newer version; upgrade voda to read this log"
        )
    return fact


def _upcast(body: EventBody, position: int) -> Data:
    fact = refuse_newer(body, position)
    data: dict[str, Any] = msgspec.json.decode(body.data)
    for schema in range(body.schema, fact.SCHEMA):
        if (upcaster := UPCASTERS.get((body.type, schema))) is None:
            raise LogDamaged(
                f"position {position} holds {body.type!r} in schema {schema}, which no released voda wrote", position
            )
        data = upcaster(data)
    return msgspec.convert(data, fact)


def _refuse_lossy(fact: Fact) -> None:
    """JSON turns NaN and infinity to null, which could never be decoded again."""
    if (path := _not_finite(msgspec.to_builtins(fact.data))) is not None:
        raise InvalidInput(f"{fact.data.TYPE}: {path or 'a value'} is not a finite number")


def _not_finite(value: Any, path: str = "") -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        if (found := _not_finite(item, f"{path}.{key}".lstrip("."))) is not None:
            return found
    return None
