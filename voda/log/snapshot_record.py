"""A snapshot as one record of bytes: what a durable store keeps, in pieces where it is large.

Rule: whoever keeps a record keeps its SHA-256 too, and proves the one by the other before it is decoded.
"""

from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from voda.domain.errors import LogDamaged
from voda.events.message_pack import append, append_map
from voda.log.store import Snapshot, SnapshotHeads


class _SnapshotRecord(Struct, frozen=True, array_like=True):
    state: bytes
    state_hash: str
    heads: Raw


_ARRAY_OF_THREE: Final = b"\x93"
_decode: Final = msgspec.msgpack.Decoder(_SnapshotRecord).decode
_decode_heads: Final = msgspec.msgpack.Decoder(dict[str, tuple[int, str, int]]).decode


def record_of(snapshot: Snapshot) -> bytes:
    """Return a snapshot as a record; for a thread: a log of years has hundreds of thousands of heads."""
    record = bytearray(_ARRAY_OF_THREE)
    append(record, snapshot.state)
    append(record, snapshot.state_hash)
    append_map(record, {stream: astuple(head) for stream, head in snapshot.heads.items()})
    return bytes(record)


def snapshot_of(name: str, position: int, record: bytes) -> Snapshot:
    """Return the snapshot of a record that is as it was written; raises LogDamaged where it cannot be read."""
    where = f"snapshot {name} at position {position}"
    try:
        kept = _decode(record)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"{where}: it cannot be read ({error})") from error
    heads = SnapshotHeads(lambda: _decode_heads(kept.heads), where)
    return Snapshot(name=name, position=position, state=kept.state, state_hash=kept.state_hash, heads=heads)
