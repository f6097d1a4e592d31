"""Speaks HTTP with the server.

Rule: every wait has a limit; what fails is one of voda's own errors, told in one sentence.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from voda import __version__
from voda.app.failures import single
from voda.cli._options import Where
from voda.cli._problems import error_of
from voda.cli._target import Target, target
from voda.domain.errors import ClusterUnavailable, PermanentError, StoreUnavailable

T = TypeVar("T")
Params = Mapping[str, str | int | list[str]]

_CONNECT_S = 5.0
_ANSWER_S = 30.0
RETRY_S = 20.0
"""How long a lost answer is asked for again."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 3.0


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

    def __init__(self, session: aiohttp.ClientSession, target: Target) -> None:
        self.target = target
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
            headers=headers,
            timeout=limit,
            ssl=self.target.tls or True,
            allow_redirects=False,
        )
        with _told(self.target):
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
            self._url(path, params), headers=headers, timeout=limit, ssl=self.target.tls or True, allow_redirects=False
        )
        with _told(self.target):
            async with sent as response:
                if response.status >= 300:
                    _refuse_beyond(response.status, await response.read())
                async for piece in response.content.iter_any():
                    yield piece

    def _url(self, path: str, params: Params | None) -> URL:
        # What is quoted stays quoted: a name with a slash must not become another path.
        return URL(f"{self.target.url}/api/v1{path}", encoded=True).update_query(params or {})


@asynccontextmanager
async def connected(where: Where) -> AsyncIterator[Client]:
    """Yield a client of the server that `where` means."""
    found = target(where)
    headers = {"User-Agent": f"voda/{__version__}"}
    if found.token:
        headers["Authorization"] = f"Bearer {found.token}"
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(headers=headers, cookie_jar=jar) as session:
        yield Client(session, found)


def answered(where: Where, question: Callable[[Client], Awaitable[T]]) -> T:
    """Return what the question comes to, asked of the server that `where` means."""

    async def ask() -> T:
        async with connected(where) as client:
            return await question(client)

    try:
        return asyncio.run(ask())
    except BaseExceptionGroup as failures:
        raise single(failures) from failures


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


async def persistently(attempt: Callable[[], Awaitable[T]], *, told: Callable[[str], None]) -> T:
    """Return what the attempt comes to, made again while the server is away; for what may be asked twice.

    Args:
        attempt: to be repeated.
        told: gets the sentence for the user, once, before the second attempt.
    """
    loop = asyncio.get_running_loop()
    gives_up_at, pause_s, is_told = loop.time() + RETRY_S, _FIRST_PAUSE_S, False
    while True:
        try:
            return await attempt()
        except (NoAnswer, StoreUnavailable) as error:
            if loop.time() + pause_s > gives_up_at:
                raise
            if not is_told:
                told(f"{error}; trying again for {RETRY_S:g} s")
                is_told = True
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _refuse_beyond(status: int, body: bytes) -> None:
    if status >= 400:
        raise error_of(status, body)
    if 300 <= status < 400 and status != 304:
        raise PermanentError(f"the server answered {status}, a redirection: name the server by its final address")


@contextmanager
def _told(target: Target) -> Iterator[None]:
    """Turn what aiohttp raises into NoAnswer."""
    where = f"{target.url} (from {target.told_by})"
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise PermanentError(
            f"{where}: its certificate is not trusted ({error.certificate_error}); give the one to trust with --ca"
        ) from error
    except TimeoutError as error:
        raise NoAnswer(f"{where} does not answer in time") from error
    except aiohttp.ClientConnectorError as error:
        reason = error.os_error.strerror or error.os_error
        raise NoAnswer(f"{where} cannot be reached: {reason}; is `voda up` running?") from error
    except aiohttp.InvalidURL as error:
        raise PermanentError(f"{where} is no address that can be asked") from error
    except (aiohttp.ClientError, OSError) as error:
        raise NoAnswer(f"{where}: the connection was lost ({str(error) or type(error).__name__})") from error
