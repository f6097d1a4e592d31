"""Speaks HTTP with the server.

Rule: every wait has a limit; what fails is one of voda's own errors, told in one sentence.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from voda import __version__
from voda.app.exception_groups import most_telling_error
from voda.cli.http.errors import error_of
from voda.cli.http.target import Target, target
from voda.cli.options import Where
from voda.domain.errors import ClusterUnavailable, PermanentError, VodaError

T = TypeVar("T")
Params = Mapping[str, str | int | list[str]]

_CONNECT_S = 5.0
_ANSWER_S = 30.0


class NoAnswer(ClusterUnavailable):
    """The server cannot be reached, or the connection was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server said."""

    status: int
    body: bytes
    etag: str = ""
    """With its quotes."""


class Client:
    """One server, for the length of a command."""

    def __init__(self, session: aiohttp.ClientSession, where: Where) -> None:
        self.target = target(where)
        self._where = where
        self._session = session

    async def get(self, path: str, params: Params | None = None) -> bytes:
        """Return the body of a resource.

        Raises:
            NoAnswer: the server does not answer.
            VodaError: it refuses.
        """
        return (await self.ask("GET", path, params=params)).body

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Return the answer to one request; redirects are not followed, so the token stays with this server."""
        limit = aiohttp.ClientTimeout(total=_ANSWER_S, sock_connect=_CONNECT_S)
        sent = self._session.request(
            method,
            self._url(path, params),
            data=body,
            headers=self._headers(headers),
            timeout=limit,
            ssl=self.target.tls or True,
            allow_redirects=False,
        )
        with self._told():
            async with sent as response:
                content = await response.read()
        _refuse_beyond(response.status, content)
        return Answer(status=response.status, body=content, etag=response.headers.get("ETag", ""))

    async def stream(
        self,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        idle_s: float | None,
    ) -> AsyncIterator[bytes]:
        """Yield an answer piece by piece.

        Args:
            path: of the resource.
            params: of the query.
            headers: beside the token.
            idle_s: longest silence before the connection is taken for lost; None = it may be silent for ever.
        """
        limit = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=idle_s)
        sent = self._session.get(
            self._url(path, params),
            headers=self._headers(headers),
            timeout=limit,
            ssl=self.target.tls or True,
            allow_redirects=False,
        )
        with self._told():
            async with sent as response:
                if response.status >= 300:
                    _refuse_beyond(response.status, await response.read())
                async for piece in response.content.iter_any():
                    yield piece

    def _url(self, path: str, params: Params | None) -> URL:
        # What is quoted stays quoted: a name with a slash must not become another path.
        return URL(f"{self.target.url}/api/v1{path}", encoded=True).update_query(params or {})

    def _headers(self, headers: Mapping[str, str] | None) -> Mapping[str, str]:
        shown = {"Authorization": f"Bearer {self.target.token}"} if self.target.token else {}
        return {**shown, **(headers or {})}

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what aiohttp raises into NoAnswer, and look where the server is by now."""
        try:
            with _told(self.target):
                yield
        except NoAnswer:
            # A voda that is started again may listen at another port.
            with suppress(VodaError):
                self.target = target(self._where)
            raise


@asynccontextmanager
async def connected(where: Where) -> AsyncIterator[Client]:
    """Yield a client of the server that `where` means."""
    headers, jar = {"User-Agent": f"voda/{__version__}"}, aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(headers=headers, cookie_jar=jar) as session:
        yield Client(session, where)


def answered(where: Where, question: Callable[[Client], Awaitable[T]]) -> T:
    """Return what the question comes to, asked of the server that `where` means."""

    async def ask() -> T:
        async with connected(where) as client:
            return await question(client)

    try:
        return asyncio.run(ask())
    except BaseExceptionGroup as failures:
        raise most_telling_error(failures) from failures


def path(*parts: str) -> str:
    """Return the path of a resource; each part is one step, whatever is in it."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def decoded(body: bytes, kind: type[T]) -> T:
    """Return an answer as the record that it is.

    Raises:
        PermanentError: it is none; a server of another version may answer so.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise PermanentError(
            f"the server's answer is not understood ({error}); it may be no voda, or one of another version than this"
            f" ({__version__})"
        ) from error


def _refuse_beyond(status: int, body: bytes) -> None:
    if status >= 400:
        raise error_of(status, body)
    if 300 <= status < 400 and status != 304:
        raise PermanentError(f"the server answered {status}, a redirection: name the server by its final address")


_NAMED: Final = "is it running, and what leads there, such as kubectl port-forward?"


@contextmanager
def _told(target: Target) -> Iterator[None]:
    """Turn what aiohttp raises into NoAnswer."""
    where = f"{target.url} (from {target.told_by})"
    asked = "is `voda up` running?" if target.told_by.endswith("server.json") else _NAMED
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise PermanentError(
            f"{where}: its certificate is not trusted ({error.certificate_error}); give the one to"
            " trust with --ca or VODA_CA"
        ) from error
    except TimeoutError as error:
        raise NoAnswer(f"{where} does not answer in time") from error
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno
        reason = os.strerror(number) if number and number > 0 else error.os_error.strerror or error.os_error
        raise NoAnswer(f"{where} cannot be reached: {reason} ({asked})") from error
    except aiohttp.InvalidURL as error:
        raise PermanentError(f"{where} is no address that can be asked") from error
    except (aiohttp.ClientError, OSError) as error:
        raise NoAnswer(f"{where}: the connection was lost ({str(error) or type(error).__name__})") from error
