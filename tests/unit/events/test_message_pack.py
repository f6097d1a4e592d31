"""What is encoded item by item is read as what is encoded at once."""

import msgspec
from msgspec import Struct

from voda.events.message_pack import append, append_array, append_map, append_structs


class Inner(Struct, frozen=True):
    reasons: dict[str, str] = {}


class Pool(Struct, kw_only=True):
    inner: Inner
    jobs: dict[str, Inner] = msgspec.field(default_factory=dict, name="all_jobs")
    by_number: dict[int, float] = {}
    text: str = ""


def test_collections_when_encoded_item_by_item_are_read_as_themselves() -> None:
    buffer = bytearray(b"\x93")
    append_array(buffer, [1, "two", None])
    append_map(buffer, {"a": 1.5, "b": [2]})
    append(buffer, b"end")
    assert msgspec.msgpack.decode(buffer) == [[1, "two", None], {"a": 1.5, "b": [2]}, b"end"]


def test_record_when_encoded_field_by_field_is_read_as_itself() -> None:
    pool = Pool(inner=Inner({"a": "full"}), jobs={"b": Inner(), "c": Inner({"d": "e"})}, by_number={3: 0.5})
    buffer = bytearray()
    append_structs(buffer, {"default": pool})
    assert msgspec.msgpack.decode(buffer, type=dict[str, Pool]) == {"default": pool}


def test_many_items_when_encoded_are_read_as_themselves() -> None:
    buffer = bytearray()
    append_array(buffer, items := list(range(70_000)))
    assert msgspec.msgpack.decode(buffer) == items
