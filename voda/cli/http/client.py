"""The client of the commands: that of voda.client, with answers as bytes, and what only a command needs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from voda.cli.http.async_http import AsyncHttpClient as Client
from voda.cli.http.port_forward import reached
from voda.cli.options import ServerOptions
from voda.client.connection import HttpAnswer, Params
from voda.client.decoding import decode
from voda.client.errors import ServerUnreachable
from voda.client.http import HttpClient, resource_path
from voda.concurrency import single_error

__all__ = [
    "Client",
    "HttpAnswer",
    "Params",
    "ServerUnreachable",
    "call_server",
    "decode",
    "open_client",
    "resource_path",
]
T = TypeVar("T")


@asynccontextmanager
async def open_client(where: ServerOptions) -> AsyncIterator[Client]:
    """Yield a client of the server that the options name."""
    with reached(where) as there:
        yield Client(HttpClient(there))


def call_server(where: ServerOptions, question: Callable[[Client], Awaitable[T]]) -> T:
    """Run a coroutine with a client of the server that the options name, and return its result."""

    async def ask() -> T:
        async with open_client(where) as client:
            return await question(client)

    try:
        return asyncio.run(ask())
    except BaseExceptionGroup as failures:
        raise single_error(failures) from failures
