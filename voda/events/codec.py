"""Encodes facts to the bytes of an event, and decodes them. Only this module knows the form of an event in the log.

Rules: a sealed body is never encoded again; it is stored, exported and imported byte for byte. An event of a type that
was renamed is decoded under its present name. An upcaster takes the decoded data of (type, schema) and returns those of
schema + 1; it is never removed.
"""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
from msgspec import Raw, Struct

from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew
from voda.events.envelope import Event, Fact, Head, Sealed
from voda.events.records import Data
from voda.events.types import AnyFact

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

RENAMED: Mapping[str, str] = {
    "job.priority_changed": "job.queue_level_changed",
}
"""Old type -> type of today, in the same schema."""
_OF_TIRESIAS: Mapping[str, tuple[str, ...]] = {
    "demote_gpu_s": ("tiresias", "elastic-tiresias"),
    "promote_knob": ("tiresias", "elastic-tiresias"),
    "compact_pending": ("elastic-tiresias",),
}


def _job_submitted_1(data: dict[str, Any]) -> dict[str, Any]:
    """Rename the fields of schema 1: accelerator, num_proc, min_num_proc, max_num_proc."""
    words = {
        "accelerator": "pool",
        "num_proc": "requested_replicas",
        "min_num_proc": "min_replicas",
        "max_num_proc": "max_replicas",
    }
    return {**data, "spec": {words.get(field, field): value for field, value in data["spec"].items()}}


def _job_submitted_2(data: dict[str, Any]) -> dict[str, Any]:
    """Schema 2 named a queue, which no policy ever looked at."""
    return {**data, "spec": {field: value for field, value in data["spec"].items() if field != "queue"}}


def _job_submitted_3(data: dict[str, Any]) -> dict[str, Any]:
    """Jobs of schema 3 waited for no other job, and were in no array."""
    return data


def _job_progressed_1(data: dict[str, Any]) -> dict[str, Any]:
    """Writers of schema 1 left out the seconds of an epoch during which the workers changed, as they saw it."""
    return data


def _plan_adopted_1(data: dict[str, Any]) -> dict[str, Any]:
    """Plans of schema 1 were decided without a look at priorities."""
    cause = data["cause"]
    return {**data, "cause": RENAMED.get(cause, cause), "respects_priority": False}


def _plan_adopted_2(data: dict[str, Any]) -> dict[str, Any]:
    """Plans of schema 2 left GPUs idle that were too scattered for the job that a policy gave them to."""
    return {**data, "fills_gaps": False}


def _plan_adopted_3(data: dict[str, Any]) -> dict[str, Any]:
    """Plans of schema 3 knew of no cells: pools had no virtual clusters."""
    return data


def _policy_changed_1(data: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 kept the parameters of both Tiresias policies among the settings of the pool."""
    parameters: dict[str, dict[str, Any]] = {}
    for parameter, policies in _OF_TIRESIAS.items():
        value = data.get(f"tiresias_{parameter}")
        if value is not None:
            for policy in policies:
                parameters.setdefault(policy, {})[parameter] = value
    rest = {field: value for field, value in data.items() if not field.startswith("tiresias_")}
    return {**rest, "parameters": parameters}


def _node_1(data: dict[str, Any]) -> dict[str, Any]:
    """Up to schema 1 a node that was cordoned or not ready was left by its workers at once."""
    node = data["node"]
    is_left = not (node.get("is_ready", True) and node.get("is_schedulable", True))
    return {**data, "node": {**node, "is_draining": True}} if is_left else data


def _node_2(data: dict[str, Any]) -> dict[str, Any]:
    """Nodes of schema 2 shared no cards."""
    return data


UPCASTERS: Mapping[tuple[str, int], Upcaster] = {
    ("job.submitted", 1): _job_submitted_1,
    ("job.submitted", 2): _job_submitted_2,
    ("job.submitted", 3): _job_submitted_3,
    ("job.progressed", 1): _job_progressed_1,
    ("node.joined", 1): _node_1,
    ("node.joined", 2): _node_2,
    ("node.changed", 1): _node_1,
    ("node.changed", 2): _node_2,
    ("plan.adopted", 1): _plan_adopted_1,
    ("plan.adopted", 2): _plan_adopted_2,
    ("plan.adopted", 3): _plan_adopted_3,
    ("policy.changed", 1): _policy_changed_1,
}


_FACTS: dict[str, type[Data]] = {fact.TYPE: fact for fact in get_args(AnyFact)}
_DECODERS = {(fact.TYPE, fact.SCHEMA): msgspec.json.Decoder(fact) for fact in _FACTS.values()}
_FACTS.update({old: _FACTS[new] for old, new in RENAMED.items()})
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
    """Return the event, upcast to the current type and schema.

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
        data = UPCASTERS[fact.TYPE, schema](data)
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
