"""Decodes the API server's JSON to trimmed objects.

Rule: an object that does not match its kind (a custom resource may hold anything) is left out and reported, and never
hides the others.
"""

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from voda.kubernetes_client.errors import one_line
from voda.kubernetes_client.metadata import ListMetadata, ObjectName, PartialObject, WatchedObject

T = TypeVar("T")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Unreadable(Exception):
    """The text is not as expected; the message says how."""


class ListPage(Struct, Generic[T], frozen=True):
    metadata: ListMetadata = ListMetadata()
    items: tuple[T, ...] | None = None
    """Go writes an empty list as null."""


class WatchLine(Struct, frozen=True):
    type: str
    object: Raw


def read(text: bytes | Raw, kind: type[T]) -> T:
    """Return an object, or raise Unreadable; nulls are as good as fields left out, as operators written in Go mean
    them.
    """
    try:
        return cast(T, decoder(cast(Hashable, kind)).decode(text))
    except _UNREADABLE as wrong:
        try:
            return msgspec.convert(_without_nulls(msgspec.json.decode(text)), kind, strict=False)
        except _UNREADABLE:
            raise Unreadable(one_line(str(wrong))) from wrong


def read_change(text: Raw, kind: type[T]) -> T:
    """Return an object of a watch, or raise Unreadable; a WatchedObject may keep its text."""
    found = read(text, kind)
    return cast(T, found.with_text(text)) if isinstance(found, WatchedObject) else found


def read_page(text: bytes, kind: type[T]) -> tuple[ListPage[T], Sequence[str]]:
    """Return a page, and the keys (`namespace/name`) of what on it is Unreadable; raised where it is no list at all."""
    keeps_text = issubclass(kind, WatchedObject) and kind.KEEPS_LISTED
    try:
        if not keeps_text:
            whole: ListPage[T] = decoder(ListPage[kind]).decode(text)  # type: ignore[valid-type]
            return whole, ()
    except _UNREADABLE:
        pass
    rough = read(text, ListPage[Raw])
    items: list[T] = []
    unread: list[str] = []
    for item in rough.items or ():
        try:
            items.append(read_change(item, kind) if keeps_text else read(item, kind))
        except Unreadable:
            unread.append(read_name(item).key)
    return ListPage(metadata=rough.metadata, items=tuple(items)), unread


def read_name(text: bytes | Raw) -> ObjectName:
    """Return the name and version of any object; empty where they cannot be read."""
    try:
        return read(text, PartialObject).metadata
    except Unreadable:
        return ObjectName()


@cache
def decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    """Return the one decoder of a kind: making one costs more than using it."""
    return msgspec.json.Decoder(cast(type[Any], kind))


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_nulls(each) for name, each in value.items() if each is not None}
        case list():
            return [_without_nulls(each) for each in value if each is not None]
    return value
