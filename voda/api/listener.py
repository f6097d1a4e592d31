"""Listening: where the application meets the network.

Rule: it ends in order: no new connection, streams end, requests in progress are answered, the rest is cut off.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web

from voda.api.connections import SlowConnectionReaper, TimedConnection
from voda.api.origin_check import LISTEN_HOST
from voda.application.backend import CallerLimits
from voda.domain.errors import AlreadyExists, InvalidInput

_BACKLOG: Final = 1_024
_ENDING_S: Final = 5.0
"""For requests in progress, once it ends."""
_HANDSHAKE_S: Final = 10.0
_ANYWHERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


@asynccontextmanager
async def serving(
    app: web.Application,
    host: str,
    port: int,
    *,
    tls: tuple[Path, Path] | None = None,
    limits: CallerLimits | None = None,
) -> AsyncIterator[str]:
    """Answer requests for the length of the block, and yield the address to ask.

    Args:
        app: see server.application.
        host: name or address to listen at; empty, 0.0.0.0 or ::, for all.
        port: 0 = any that is free.
        tls: files of the certificate (with its chain) and of its key, PEM.
        limits: of slow callers; see Limits.

    Raises:
        AlreadyExists: somebody else listens there.
        InvalidInput: there is no such address, or the certificate cannot be used.
    """
    limits, loop = limits or CallerLimits(), asyncio.get_running_loop()
    context = _context(*tls) if tls else None
    app[LISTEN_HOST] = host
    runner = web.AppRunner(app, shutdown_timeout=_ENDING_S)
    await runner.setup()
    server = runner.server
    assert server is not None, "made by setup"
    sweeper = SlowConnectionReaper(server, loop, limits)
    try:
        listener = await _listen(lambda: TimedConnection(server, loop, limits), host, port, context)
        sweeper.begin()
        try:
            yield _url(host, listener, is_secure=context is not None)
        finally:
            listener.close()
    finally:
        await runner.cleanup()
        sweeper.end()


async def _listen(
    connection: Callable[[], TimedConnection], host: str, port: int, context: ssl.SSLContext | None
) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(
            connection,
            host or None,
            port,
            ssl=context,
            ssl_handshake_timeout=_HANDSHAKE_S if context else None,
            backlog=_BACKLOG,
        )
    except socket.gaierror as error:
        raise InvalidInput(f"--host {host}: there is no such address ({error.strerror})") from error
    except OverflowError as error:
        raise InvalidInput(f"--port is {port}, expected 0 (any) to 65535") from error
    except OSError as error:
        raise _not_listening(error, host, port) from error


def _not_listening(error: OSError, host: str, port: int) -> AlreadyExists | InvalidInput:
    where = f"{host or 'all addresses'}, port {port}"
    if error.errno == errno.EADDRINUSE:
        return AlreadyExists(f"{where}: another program listens there; stop it, or choose another with --port")
    if error.errno == errno.EACCES:
        return InvalidInput(f"{where}: this needs more rights; choose a port above 1023 with --port")
    if error.errno == errno.EADDRNOTAVAIL:
        return InvalidInput(f"{where}: this machine does not have that address; choose another with --host")
    return InvalidInput(f"{where}: cannot listen there ({error.strerror or error})")


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for file in (certificate, key):
        try:
            file.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error
    try:
        # A key that is locked by a password would make the server ask for it on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidInput(
            f"{certificate} and {key} are not a certificate and its key without a password, both PEM ({error})"
        ) from error
    return context


def _url(host: str, listener: asyncio.Server, *, is_secure: bool) -> str:
    port = listener.sockets[0].getsockname()[1]
    name = _ANYWHERE.get(host, host)
    return f"{'https' if is_secure else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"
