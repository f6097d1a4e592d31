"""Connections to one API server, and their end.

Rule: when they are closed, none is left. aiohttp forgets a connection whose request was cancelled while it waited for
its answer, and goes on to wait for the server's farewell of TLS, longer than the loop may last; hence every socket is
remembered here for as long as it is open.
"""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from aiohttp import AddrInfoType, TCPConnector

from voda.domain.errors import InvalidInput
from voda.kubernetes_client.errors import one_line

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

_CLOSE_S: Final = 1.0
_LOOK_S: Final = 0.005


class Connections:
    """See the module; `limit` of them are open at most, and more requests wait."""

    def __init__(self, tls: ssl.SSLContext, limit: int) -> None:
        self._sockets = WeakSet[socket.socket]()
        self.connector = TCPConnector(ssl=tls, limit=limit, socket_factory=self._open)

    async def close(self) -> None:
        await self.connector.close(abort_ssl=True)
        for left in self._sockets:
            with suppress(OSError):
                left.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                while any(each.fileno() >= 0 for each in self._sockets):  # noqa: ASYNC110 - a socket tells nobody
                    await asyncio.sleep(_LOOK_S)

    def _open(self, address: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
        self._sockets.add(opened)
        return opened


def tls_of(configuration: "Configuration") -> ssl.SSLContext:
    """Return how to trust the server and to be trusted; InvalidInput: a certificate or key cannot be read."""
    try:
        tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    except (OSError, ValueError) as wrong:
        raise InvalidInput(f"the certificates for the API server cannot be used: {one_line(str(wrong))}") from wrong
    if not configuration.verify_ssl:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls
