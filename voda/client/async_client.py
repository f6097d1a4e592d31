"""The client for asyncio: the methods of the other one, each call in a thread of its own."""

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from voda.client.client import Client, client_over
from voda.client.http import ANSWER_S, RETRY_S
from voda.client.threads import iterate_in_thread, run_in_thread

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    async def call(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_in_thread(self.client.http, lambda http: method(client_over(http), *args, **kwargs))

    update_wrapper(call, method)
    return call


def _iterated(
    method: Callable[Concatenate[Client, P], Iterator[T]],
) -> Callable[Concatenate["AsyncClient", P], AsyncGenerator[T, None]]:
    def call(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        return iterate_in_thread(self.client.http, lambda http: method(client_over(http), *args, **kwargs))

    update_wrapper(call, method)
    return call


class AsyncClient:
    """A client of one server for asyncio; see `voda.client.Client` for what each argument and method means."""

    def __init__(  # noqa: PLR0913 - each may be given
        self,
        server: str | None = None,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        home: str | os.PathLike[str] | None = None,
        *,
        timeout_s: float = ANSWER_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self.client = Client(server, token, ca, home, timeout_s=timeout_s, retry_s=retry_s)
        """The one whose methods run in threads."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    @property
    def server(self) -> str:
        """The address of the server."""
        return self.client.server

    submit = _awaited(Client.submit)
    get = _awaited(Client.get)
    list = _awaited(Client.list)
    wait = _awaited(Client.wait)
    logs = _iterated(Client.logs)
    exec = _awaited(Client.exec)
    """Canceled, it ends the command."""
    cancel = _awaited(Client.cancel)
    halt = _awaited(Client.halt)
    resume = _awaited(Client.resume)
    rerun = _awaited(Client.rerun)
    scale = _awaited(Client.scale)
    events = _iterated(Client.events)
    settings = _awaited(Client.settings)
    change_settings = _awaited(Client.change_settings)
    whoami = _awaited(Client.whoami)
