"""The API server, in trimmed objects: kubernetes-asyncio brings credentials and TLS, msgspec the rest.

Rules: every call has a timeout; an answer that is no success becomes one of voda's errors (errors.py), in one sentence
that names verb and path; a call is repeated here only where the server did not take it (429 with Retry-After, a
connection that was refused), and only a few times: all callers are level-triggered, and come back.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

from msgspec import Struct

from voda.domain.errors import ClusterUnavailable
from voda.kubernetes_client.decoding import Unreadable, WatchLine, read, read_change, read_name, read_page
from voda.kubernetes_client.errors import Absent, NotServed, error_of, one_line, parse_status
from voda.kubernetes_client.transport import Request, TooLarge, Transport
from voda.metrics import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PAGE: Final = 500
_PAGE_BYTES: Final = 64 << 20
"""An object may have 1.5 MB and a page is held in memory: where it would be larger, smaller pages are requested."""
_EVENT_BYTES: Final = 16 << 20
_WATCH_S: Final = 300
_DISCOVERY_DEPTH: Final = 2
"""Slashes in apis/GROUP/VERSION."""
_CHANGES: Final = frozenset(("ADDED", "MODIFIED", "DELETED", "BOOKMARK"))
_WRITTEN_BY: Final = {"fieldManager": "voda"}


class ObjectList(Struct, Generic[T], frozen=True):
    """All objects of a kind at one resource version."""

    items: Sequence[T]
    resource_version: str
    unread: Sequence[str] = ()
    """`namespace/name` of objects that are there, but do not read like the kind."""


class WatchEvent(Struct, Generic[T], frozen=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T
    resource_version: str


class Api:
    """One API server; made inside a running loop; InvalidInput: a certificate cannot be read.

    The time limit is for one answer, all tries included; a watch may be silent for as much longer than agreed.
    """

    def __init__(
        self, configuration: "Configuration", *, timeout_s: float = 15.0, telemetry: Telemetry = NO_TELEMETRY
    ) -> None:
        self.host = str(configuration.host)
        """URL."""
        self._transport = Transport(configuration, timeout_s=timeout_s, telemetry=telemetry)

    @classmethod
    async def open(
        cls, kubeconfig: Path | None, context: str = "", *, timeout_s: float = 15.0, telemetry: Telemetry = NO_TELEMETRY
    ) -> "Api":
        """Return the server that a kubeconfig names, or the one of the cluster that voda runs in; see
        `load_configuration`.
        """
        # Of the extra `kubernetes`, which only a cluster needs.
        from voda.kubernetes_client.credentials import load_configuration

        return cls(await load_configuration(kubeconfig, context), timeout_s=timeout_s, telemetry=telemetry)

    async def close(self) -> None:
        await self._transport.close()

    @property
    def server_time(self) -> float | None:
        """The server's time of day by now, to about a second; None where no answer has said it."""
        return self._transport.server_time

    async def get(self, path: str, kind: type[T]) -> T | None:
        """Return an object; None where there is none. `kind` may be dict, for the whole object.

        A path above all objects (/apis/GROUP, /apis/GROUP/VERSION) is None where the server does not serve it.
        """
        try:
            return await self._send(Request(verb="get", method="GET", path=path), kind)
        except Absent:
            return None
        except NotServed:
            if path.strip("/").count("/") <= _DISCOVERY_DEPTH:
                return None
            raise

    async def list(self, path: str, kind: type[T], query: Mapping[str, str] | None = None) -> ObjectList[T]:
        """Return all objects of a collection, fetched page by page.

        Raises:
            Gone: it took so long that the pages do not belong together any more.
            NotServed: the server does not serve the collection, or not yet.
        """
        items: list[T] = []
        unread: list[str] = []
        limit, token = _PAGE, ""
        while True:
            selection = {**(query or {}), "limit": str(limit), **({"continue": token} if token else {})}
            request = Request(verb="list", method="GET", path=path, query=selection)
            try:
                text = await self._transport.send(request, most_bytes=_PAGE_BYTES)
                page, left_out = read_page(text, kind)
            except TooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                continue
            except Unreadable as wrong:
                raise _bad_answer(request, wrong) from wrong
            items += page.items or ()
            unread += left_out
            token = page.metadata.continue_
            if not token:
                break
        if not page.metadata.resource_version:
            raise _bad_answer(request, "it has no resourceVersion")
        _log_unread(path, unread)
        return ObjectList(items=tuple(items), resource_version=page.metadata.resource_version, unread=tuple(unread))

    async def watch(
        self,
        path: str,
        kind: type[T],
        *,
        after: str,
        query: Mapping[str, str] | None = None,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield what changes in a collection after a resource version; ends when the server ends it.

        The query's timeoutSeconds says when that is; `opened` is called once the server has agreed.

        Raises:
            Gone: that version is not kept any more.
            ClusterUnavailable: the connection broke.
        """
        selection = {
            "timeoutSeconds": str(_WATCH_S),
            **(query or {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": after,
        }
        request = Request(verb="watch", method="GET", path=path, query=selection)
        silence_s = float(selection["timeoutSeconds"]) + self._transport.timeout_s
        async with self._transport.opened(request, silence_s=silence_s) as answer:
            if opened is not None:
                opened()
            async for line in _lines(answer.content.iter_any(), request):
                change = _change(line, kind, request)
                if change is not None:
                    yield change

    async def create(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        """Create an object in a collection, or post to a subresource as pods/NAME/binding; Conflict: it is there."""
        request = Request(verb="create", method="POST", path=path, query=_WRITTEN_BY, body=body)
        return await self._send(request, kind)

    async def patch(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T | None:
        """Change an object by a JSON merge patch; None where there is none.

        `metadata.resourceVersion` in the body makes it conditional (Conflict).
        """
        merge = "application/merge-patch+json"
        request = Request(verb="patch", method="PATCH", path=path, query=_WRITTEN_BY, body=body, content=merge)
        try:
            return await self._send(request, kind)
        except Absent:
            return None

    async def delete(self, path: str, *, uid: str = "", version: str = "", grace_s: int | None = None) -> bool:
        """Delete an object and, in the background, what it owns; False where there is none.

        With a uid the server refuses (Conflict) unless it is this very one, with a version unless it is as it was.
        `grace_s` of a pod: 0 = at once, even if its node does not answer; None = as the pod says.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if named := {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}:
            options["preconditions"] = named
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            await self._transport.send(Request(verb="delete", method="DELETE", path=path, body=options))
        except Absent:
            return False
        return True

    async def text(
        self, path: str, query: Mapping[str, str] | None = None, *, silence_s: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the pieces of an answer that is no JSON, such as a pod's log.

        The longest pause between two pieces is `silence_s`; None = any, as long as the connection is alive.
        ClusterUnavailable: it broke off; ActionRefused: there is nothing to read.
        """
        request = Request(verb="get", method="GET", path=path, query=query or {}, accept="*/*")
        async with self._transport.opened(request, silence_s=silence_s) as answer:
            async for piece in answer.content.iter_any():
                yield piece

    async def _send(self, request: Request, kind: type[T]) -> T:
        text = await self._transport.send(request)
        try:
            return read(text, kind)
        except Unreadable as wrong:
            raise _bad_answer(request, wrong) from wrong


async def _lines(pieces: AsyncIterator[bytes], request: Request) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for piece in pieces:
        *whole, last = piece.split(b"\n")
        for end in whole:
            yield bytes(rest + end)
            rest.clear()
        rest += last
        if len(rest) > _EVENT_BYTES:
            raise _bad_answer(request, f"an event has more than {_EVENT_BYTES >> 20} MiB")
    if rest:
        raise ClusterUnavailable(f"cannot {request.text}: the answer broke off in the middle of an event")


def _change(line: bytes, kind: type[T], request: Request) -> WatchEvent[T] | None:
    """Return the event in a line of a watch; None where there is none, or none that can be read."""
    if not line.strip():
        return None
    try:
        event = read(line, WatchLine)
    except Unreadable as wrong:
        raise _bad_answer(request, wrong) from wrong
    if event.type == "ERROR":
        raise error_of(request.text, parse_status(0, bytes(event.object)))
    if event.type not in _CHANGES or not (at := read_name(event.object).resource_version):
        raise _bad_answer(
            request, f"an event of type {one_line(event.type)!r} without a known type or a resourceVersion"
        )
    try:
        return WatchEvent(type=cast(Any, event.type), object=read_change(event.object, kind), resource_version=at)
    except Unreadable as wrong:
        _log_unread(request.path, [f"{read_name(event.object).key} ({wrong})"])
        return None


def _bad_answer(request: Request, wrong: object) -> ClusterUnavailable:
    return ClusterUnavailable(f"cannot {request.text}: the answer is not what an API server says ({wrong})")


def _log_unread(path: str, unread: Sequence[str]) -> None:
    if unread:
        _log.warning("objects left out path=%s count=%d first=%s", path, len(unread), one_line(unread[0]))
