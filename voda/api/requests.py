"""What a request holds, read with limits, and how records become answers.

Rule: what is sent is checked before it is used; whatever is wrong with it is told with the field's path.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from voda.api.operation import JSON, YAML
from voda.api.problems import UnreadableBody, WrongMediaType
from voda.application.backend import CallerLimits
from voda.domain.errors import InvalidField, InvalidInput
from voda.manifests.read.text import read

S = TypeVar("S", bound=Struct)
_encode: Final = msgspec.json.Encoder().encode
_AT: Final = re.compile(r" - at `(?P<path>[^`]*)`$")
_MANIFESTS: Final = (YAML, JSON, "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain")
_WORDS: Final = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "null": "null"}
"""What msgspec calls by Python's names."""
_BIG_BYTES: Final = 20_000
"""A manifest larger than this is read in a thread: YAML takes its time, and others wait."""
_LISTS: Final[dict[type[Struct], frozenset[str]]] = {}
"""query -> its parameters that may be given more than once."""


def json_response(value: object, *, status: int = 200, etag: str = "") -> web.Response:
    """Return a record as JSON.

    Args:
        value: of voda.api.schemas.
        status: of the answer.
        etag: without its quotes; empty = none.
    """
    return encoded_response(_encode(value), status=status, etag=etag)


def encoded_response(body: bytes, *, status: int = 200, etag: str = "") -> web.Response:
    """Return bytes that are JSON already."""
    headers = {"Content-Type": JSON}
    if etag:
        headers["ETag"] = f'"{etag}"'
    return web.Response(body=body, status=status, headers=headers)


def query_of(request: web.Request, query: type[S]) -> S:
    """Return the parameters of the query, which all have defaults.

    Raises:
        InvalidField: one is unknown, given twice, or wrong.
    """
    if not request.rel_url.raw_query_string:
        return query()
    several = _LISTS.get(query)
    if several is None:
        several = _LISTS[query] = frozenset(_lists(query))
    given = request.query
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


async def raw_body(request: web.Request, limits: CallerLimits) -> bytes:
    """Return the body as sent.

    Raises:
        HTTPRequestEntityTooLarge: it is larger than the server takes.
        HTTPRequestTimeout: it does not arrive in time.
        WrongMediaType: it is compressed.
    """
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise WrongMediaType("a compressed body is not read here: send it as it is, without Content-Encoding")
    if request.content.is_eof():
        return await request.read()
    try:
        async with asyncio.timeout(limits.request_s):
            return await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout from error


async def body_of(request: web.Request, record: type[S], limits: CallerLimits) -> S:
    """Return the JSON body as a record.

    Raises:
        UnreadableBody: it is not JSON.
        InvalidField: a field is unknown or wrong.
        WrongMediaType: it says that it is something else.
    """
    refuse_other_types(request, (JSON, "application/merge-patch+json"))
    content = await raw_body(request, limits)
    try:
        return msgspec.json.decode(content, type=record)
    except msgspec.ValidationError as error:
        raise _wrong(error, "the body", record) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableBody(f"the body is not JSON: {error}") from error


async def manifest_of(request: web.Request, limits: CallerLimits) -> dict[str, Any]:
    """Return the body as a manifest: YAML or JSON, whichever it is.

    Raises:
        UnreadableBody: it is neither, or no mapping.
        WrongMediaType: it says that it is something else.
    """
    refuse_other_types(request, _MANIFESTS)
    body = await raw_body(request, limits)
    try:
        return read(body) if len(body) <= _BIG_BYTES else await asyncio.to_thread(read, body)
    except InvalidField:
        raise
    except InvalidInput as error:
        raise UnreadableBody(str(error)) from error


def refuse_other_types(request: web.Request, expected: Iterable[str]) -> None:
    """Refuse a body that says to be of none of the expected types; one that says nothing is taken.

    Raises:
        WrongMediaType: as said.
    """
    # What curl says of --data-binary where nobody told it otherwise.
    if "Content-Type" in request.headers and request.content_type not in (
        *expected,
        "application/x-www-form-urlencoded",
        "application/octet-stream",
    ):
        raise WrongMediaType(
            f"the body is of type {request.content_type[:80]!r}, expected {' or '.join(expected)}: set Content-Type"
        )


def is_unchanged(request: web.Request, etag: str) -> bool:
    """Return whether the caller has the resource as it is (If-None-Match); `etag` without its quotes."""
    # The weak comparison of RFC 9110: a proxy that compresses the body may have weakened the tag.
    known = _tags(request, "If-None-Match")
    return "*" in known or any(tag.removeprefix("W/").strip('"') == etag for tag in known)


def is_expected(request: web.Request, etag: str) -> bool:
    """Return whether the resource is as the caller believes it to be (If-Match), or the caller does not care."""
    # The strong comparison: who has a weak tag has not seen just this.
    believed = _tags(request, "If-Match")
    return not believed or "*" in believed or any(tag.strip('"') == etag for tag in believed)


def _tags(request: web.Request, header: str) -> Sequence[str]:
    """Return the tags of a header, which may be given several times; none of ours holds a comma."""
    return [tag.strip() for line in request.headers.getall(header, ()) for tag in line.split(",")]


def _lists(query: type[Struct]) -> Iterable[str]:
    for field in msgspec.structs.fields(query):
        kinds = msgspec.inspect.ListType | msgspec.inspect.VarTupleType | msgspec.inspect.SetType
        if isinstance(_kind_of(field), kinds):
            yield field.encode_name


def _kind_of(field: msgspec.structs.FieldInfo) -> msgspec.inspect.Type:
    """Return the type of a field without what is said about it."""
    kind = msgspec.inspect.type_info(field.type)
    while isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    return kind


def _wrong(error: msgspec.ValidationError, where: str, record: type[Struct]) -> InvalidField:
    """Return the error with the field's path as a user writes it."""
    text = str(error)
    at = _AT.search(text)
    path = at["path"].removeprefix("$").removeprefix(".") if at else ""
    message = text[: at.start()] if at else text
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL):
        path = f"{path}.{unknown[1]}".removeprefix(".")
        known = [] if "." in path else [field.encode_name for field in msgspec.structs.fields(record)]
        expected = f", expected one of {', '.join(known)}" if known else ""
        return InvalidField(path[:200], f"{where} has {path[:200]!r}, which is unknown here{expected}")
    expected = _choices(record, path) if message.startswith("Invalid enum value") else ""
    for name, word in _WORDS.items():
        message = message.replace(f"`{name}`", word)
    return InvalidField(path, f"{path or where}: {message[0].lower()}{message[1:].replace('>= 0.0', '>= 0')}{expected}")


def _choices(record: type[Struct], path: str) -> str:
    """Return what a field may be, where those are words; empty otherwise."""
    name = path.partition("[")[0]
    for field in msgspec.structs.fields(record):
        if field.encode_name == name:
            kind = _kind_of(field)
            kind = kind.item_type if isinstance(kind, msgspec.inspect.VarTupleType) else kind
            if isinstance(kind, msgspec.inspect.EnumType):
                return f", expected one of {', '.join(str(member.value) for member in kind.cls)}"
            if isinstance(kind, msgspec.inspect.LiteralType):
                return f", expected one of {', '.join(map(str, kind.values))}"
    return ""
