"""Rows of the tables beside the events: what they say, if it is what was written."""

import msgspec

from voda.domain.errors import LogDamaged
from voda.events.envelope import hash_of
from voda.log.durable_store import Base
from voda.log.store import Snapshot, SnapshotHeads

_decode_base = msgspec.json.Decoder(Base).decode
_decode_heads = msgspec.json.Decoder(dict[str, tuple[int, str, int]]).decode


def base_of(place: str, position: int, body: bytes | str, digest: str) -> Base:
    """Return where a log begins.

    Raises:
        LogDamaged: the record is not what was written.
    """
    # A damaged SQLite file may hold text where its column promises bytes.
    if isinstance(body, str) or hash_of(body) != digest:
        raise LogDamaged(f"{place}: the record of the archive (position {position}) is not what was written")
    try:
        base = _decode_base(body)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"{place}: the record of what was archived cannot be read ({error})") from error
    if base.position != position:
        raise LogDamaged(f"{place}: the record of what was archived is of {base.position}, expected {position}")
    return base


def snapshot_of(name: str, position: int, state: bytes | str, state_hash: str, heads: bytes) -> Snapshot:
    """Return a snapshot; its heads are looked at when they are asked for.

    Raises:
        LogDamaged: the state is not what was written.
    """
    where = f"snapshot {name} at position {position}"
    # A damaged SQLite file may hold text where its column promises bytes.
    if isinstance(state, str) or hash_of(state) != state_hash:
        raise LogDamaged(f"{where}: the checksum does not fit the state")
    kept = SnapshotHeads(lambda: _decode_heads(heads), where)
    return Snapshot(name=name, position=position, state=state, state_hash=state_hash, heads=kept)
