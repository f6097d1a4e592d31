"""The client of the commands: that of voda.client, of the server that the options name."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from voda.cli.http.port_forward import reached
from voda.cli.options import ServerOptions
from voda.cli.render.terminal import note
from voda.client.connection import HttpAnswer, HttpCall, Params
from voda.client.decoding import decode
from voda.client.errors import ServerUnreachable
from voda.client.http import ANSWER_S, resource_path
from voda.client.http import HttpClient as Client
from voda.domain.errors import VodaError

__all__ = [
    "Client",
    "HttpAnswer",
    "HttpCall",
    "Params",
    "ServerUnreachable",
    "call_server",
    "decode",
    "for_each",
    "resource_path",
]
T = TypeVar("T")


def call_server(where: ServerOptions, question: Callable[[Client], T], *, timeout_s: float = ANSWER_S) -> T:
    """Return what a question to the server that the options name comes to; an answer may take `timeout_s`."""
    with reached(where) as there:
        return question(Client(there, timeout_s=timeout_s, lost=note))


def for_each(things: Sequence[T], act: Callable[[T], None]) -> None:
    """Call `act` on one item after the other, whatever fails; print all failures but the last, which is raised."""
    failure: VodaError | None = None
    for thing in things:
        try:
            act(thing)
        except VodaError as error:
            if failure is not None:
                note(str(failure))
            failure = error
    if failure is not None:
        raise failure
