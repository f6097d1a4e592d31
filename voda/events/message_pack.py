"""Encodes large collections as MessagePack item by item, so that other threads get their turns in between.

msgspec encodes in one call, for which every other thread of the process waits: half a second for a hundred thousand
jobs.

Rule: the bytes are read by msgspec as those of the whole collection.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

_ARRAY_32: Final = b"\xdd"
_MAP_32: Final = b"\xdf"
_END: Final = -1
"""Offset of a buffer at which the encoder appends."""
_encoder: Final = msgspec.msgpack.Encoder()


def append(buffer: bytearray, value: object) -> None:
    """Append a value that is small."""
    _encoder.encode_into(value, buffer, _END)


def append_array(buffer: bytearray, items: Collection[object]) -> None:
    """Append an array of items, each of which is small."""
    buffer += _ARRAY_32 + len(items).to_bytes(4)
    for item in items:
        _encoder.encode_into(item, buffer, _END)


def append_map(buffer: bytearray, items: Mapping[Any, object]) -> None:
    """Append a map of values, each of which is small."""
    buffer += _MAP_32 + len(items).to_bytes(4)
    for key, value in items.items():
        _encoder.encode_into(key, buffer, _END)
        _encoder.encode_into(value, buffer, _END)


def append_structs(buffer: bytearray, records: Mapping[str, Struct]) -> None:
    """Append a map of records, of which some fields are large maps by names, such as those of jobs."""
    buffer += _MAP_32 + len(records).to_bytes(4)
    for key, record in records.items():
        append(buffer, key)
        _append_struct(buffer, record)


def _append_struct(buffer: bytearray, record: Struct) -> None:
    names = record.__struct_encode_fields__
    buffer += _MAP_32 + len(names).to_bytes(4)
    for name, field in zip(names, record.__struct_fields__, strict=True):
        append(buffer, name)
        value = getattr(record, field)
        if isinstance(value, Mapping):
            append_map(buffer, value)
        elif isinstance(value, Struct) and _is_plain(value):
            _append_struct(buffer, value)
        else:
            append(buffer, value)


def _is_plain(record: Struct) -> bool:
    """Return whether it is encoded as a map of its fields and nothing else."""
    return record.__struct_config__.tag is None and not record.__struct_config__.array_like
