"""Reads queries, bodies and preconditions of requests within limits, and makes responses from records.

Rule: everything is checked before it is used; an error names the path of the field that is wrong.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from voda.api.admission import CallerLimits
from voda.api.operation import JSON, YAML
from voda.api.problems import UnreadableBody, WrongMediaType
from voda.domain.errors import InvalidField, InvalidInput
from voda.manifests.text import read, repeated_key

S = TypeVar("S", bound=Struct)
_encode: Final = msgspec.json.Encoder().encode
_AT: Final = re.compile(r" - at `(?P<path>[^`]*)`$")
_MANIFESTS: Final = (YAML, JSON, "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain")
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
"""Python's name of a type in an error of msgspec -> ours."""
_BIG_BYTES: Final = 20_000
"""A larger manifest is read in a thread, because YAML takes its time and others would wait."""


def json_response(value: object, *, status: int = 200, etag: str = "") -> web.Response:
    """Return a record as JSON; `etag` comes without quotes, empty = none."""
    return encoded_response(_encode(value), status=status, etag=etag)


def encoded_response(body: bytes, *, status: int = 200, etag: str = "") -> web.Response:
    """Return bytes that are JSON as a response."""
    headers = {"Content-Type": JSON}
    if etag:
        headers["ETag"] = f'"{etag}"'
    return web.Response(body=body, status=status, headers=headers)


def cached_response(request: web.Request, body: bytes, etag: str) -> web.Response:
    """Return bytes that are JSON, or 304 where the caller has them already (If-None-Match); `etag` without quotes."""
    # RFC 9110's weak comparison: a proxy that compresses the body may have weakened the tag.
    known = _tags(request, "If-None-Match")
    if "*" in known or any(tag.removeprefix("W/").strip('"') == etag for tag in known):
        return web.Response(status=304, headers={"ETag": f'"{etag}"'})
    return encoded_response(body, etag=etag)


def query_of(request: web.Request, query: type[S]) -> S:
    """Return the parameters of the query; raises InvalidField where one is unknown, given twice, or wrong."""
    if not request.rel_url.raw_query_string:
        return query()
    several, given = _lists(query), request.query
    found: dict[str, object] = {}
    for name in given:
        values = given.getall(name)
        if name not in several and len(values) > 1:
            raise InvalidField(name, f"{name} is given {len(values)} times, expected once")
        found[name] = values if name in several else values[0]
    try:
        return msgspec.convert(found, query, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(error, "the query", query) from error


def printable_reason(reason: str) -> str:
    """Return a reason that a query gives; raises InvalidField where it could not be shown as one line."""
    if not reason.isprintable():
        raise InvalidField("reason", "reason: expected one line of printable characters")
    return reason


async def raw_body(request: web.Request, limits: CallerLimits) -> bytes:
    """Return the body as sent; raises HTTPException where it is too large or slow, WrongMediaType if compressed."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise WrongMediaType("this server reads no compressed body: send it without Content-Encoding")
    if request.content.is_eof():
        return await request.read()
    body = bytearray()
    try:
        async with asyncio.timeout(limits.request_s):
            while piece := await request.content.readany():
                body += piece
                if len(body) > limits.body_bytes:
                    raise web.HTTPRequestEntityTooLarge(max_size=limits.body_bytes, actual_size=len(body))
        return bytes(body)
    except TimeoutError as error:
        raise web.HTTPRequestTimeout from error
    except ConnectionError as error:
        # The connection keeps it, and with the frames of its traceback itself and what has come of the body, for long.
        error.__traceback__ = None
        raise ConnectionResetError("the connection was closed before the body had ended") from None


async def body_of(request: web.Request, record: type[S], limits: CallerLimits) -> S:
    """Return the JSON body as a record; raises InvalidField, or UnreadableBody where it is not JSON."""
    refuse_other_types(request, (JSON, "application/merge-patch+json"))
    content = await raw_body(request, limits)
    try:
        read = msgspec.json.decode(content, type=record)
    except msgspec.ValidationError as error:
        raise _wrong(error, "the body", record, content) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableBody(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise UnreadableBody("the body is nested too deep") from error
    # The last of several would win in silence.
    if (key := repeated_key(content)) is not None:
        raise InvalidField(key, f"the body has {key!r} twice in one object: keep one of them")
    return read


async def manifest_of(request: web.Request, limits: CallerLimits) -> dict[str, Any]:
    """Return the body as a manifest, YAML or JSON; raises UnreadableBody where it is neither, or not a mapping."""
    body = await manifest_text(request, limits)
    try:
        return read(body) if len(body) <= _BIG_BYTES else await asyncio.to_thread(read, body)
    except InvalidField:
        raise
    except InvalidInput as error:
        raise UnreadableBody(str(error)) from error


async def manifest_text(request: web.Request, limits: CallerLimits) -> bytes:
    """Return the body, which claims to be YAML or JSON; raises what `raw_body` raises."""
    refuse_other_types(request, _MANIFESTS)
    return await raw_body(request, limits)


def refuse_other_types(request: web.Request, expected: Iterable[str]) -> None:
    """Refuse a body of another type than the expected ones with WrongMediaType; one without a type is accepted."""
    # curl sends these types for --data-binary unless another is given.
    if "Content-Type" in request.headers and request.content_type not in (
        *expected,
        "application/x-www-form-urlencoded",
        "application/octet-stream",
    ):
        raise WrongMediaType(
            f"the body is of type {request.content_type[:80]!r}, expected {' or '.join(expected)}: set Content-Type"
        )


def is_expected(request: web.Request, etag: str) -> bool:
    """Return whether the caller has seen the current resource (If-Match), or does not care."""
    # RFC 9110's strong comparison: a caller with a weak tag has not seen exactly this.
    believed = _tags(request, "If-Match")
    return not believed or "*" in believed or any(tag.strip('"') == etag for tag in believed)


def _tags(request: web.Request, header: str) -> Sequence[str]:
    """Return the tags of a header, which may occur several times; no tag of this API holds a comma."""
    return [tag.strip() for line in request.headers.getall(header, ()) for tag in line.split(",")]


@cache
def _lists(query: type[Struct]) -> Collection[str]:
    """Return the parameters of a query that may be given more than once."""
    kinds = msgspec.inspect.ListType | msgspec.inspect.VarTupleType | msgspec.inspect.SetType
    return {field.encode_name for field in msgspec.structs.fields(query) if isinstance(_kind_of(field), kinds)}


def _kind_of(field: msgspec.structs.FieldInfo) -> msgspec.inspect.Type:
    """Return the type of a field without its annotations."""
    kind = msgspec.inspect.type_info(field.type)
    while isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    return kind


def _wrong(error: msgspec.ValidationError, where: str, record: type[Struct], content: bytes = b"") -> InvalidField:
    """Return an error that names the field's path as a user writes it; `content` is JSON that may hold maps."""
    text = str(error)
    at = _AT.search(text)
    path = at["path"].removeprefix("$").removeprefix(".") if at else ""
    if "[...]" in path:
        path = _with_keys(path, content, record, text)
    message = text[: at.start()] if at else text
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL):
        path = f"{path}.{unknown[1]}".removeprefix(".")
        known = [] if "." in path else [field.encode_name for field in msgspec.structs.fields(record)]
        expected = f", expected one of {', '.join(known)}" if known else ""
        return InvalidField(path[:200], f"{where} has {path[:200]!r}, which is unknown{expected}")
    if (wrong := re.fullmatch(r"Invalid enum value (.*)", message, re.DOTALL)) and (choices := _choices(record, path)):
        path = path.partition("[")[0]
        return InvalidField(path, f"{path}: expected one of {choices}, got {wrong[1][:80]}")
    for name, word in _WORDS.items():
        message = message.replace(f"`{name}`", word)
    return InvalidField(path, f"{path or where}: {message[0].lower()}{message[1:].replace('>= 0.0', '>= 0')}")


def _with_keys(path: str, content: bytes, record: type[Struct], text: str) -> str:
    """Return a path with the keys of maps, for each of which msgspec writes [...]: a key without which all is well."""

    def is_wrong() -> bool:
        try:
            msgspec.convert(body, record)
        except msgspec.ValidationError as error:
            return str(error) == text
        return False

    names = path.replace("[...]", ".*").split(".")
    with suppress(msgspec.DecodeError, KeyError):
        place = body = msgspec.json.decode(content)
        if not is_wrong():
            return path
        for depth, name in enumerate(names):
            if name == "*":
                for key in list(place):
                    value = place.pop(key)
                    if not is_wrong():
                        break
                names[depth], place[key] = key, value
            place = place[names[depth]]
        return ".".join(names)
    return path


def _choices(record: type[Struct], path: str) -> str:
    """Return the values of a field that is an enumeration; empty for others."""
    name = path.partition("[")[0]
    for field in msgspec.structs.fields(record):
        if field.encode_name == name:
            kind = _kind_of(field)
            kind = kind.item_type if isinstance(kind, msgspec.inspect.VarTupleType) else kind
            if isinstance(kind, msgspec.inspect.EnumType):
                return ", ".join(str(member.value) for member in kind.cls)
            if isinstance(kind, msgspec.inspect.LiteralType):
                return ", ".join(map(str, kind.values))
    return ""
