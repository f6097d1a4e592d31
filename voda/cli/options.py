"""The options that all commands which ask the server share, and the output formats.

Rule: such a command takes a `ServerOptions` as its first parameter; `asks_server` adds the options that fill it.
"""

import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

_PANEL = "Server"


class Output(enum.StrEnum):
    """Output format of an answer."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


OutputOption = Annotated[
    Output,
    typer.Option("--output", "-o", help="For people (table, wide), for programs (json, yaml), or the names alone."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The server, as the user named it."""

    server: Annotated[
        str,
        typer.Option(
            "--server",
            metavar="URL",
            help="By default VODA_SERVER, else the voda that runs here.",
            rich_help_panel=_PANEL,
        ),
    ] = ""
    token: Annotated[
        str,
        typer.Option(
            "--token",
            metavar="TOKEN",
            help="By default VODA_TOKEN, else the admin token in the data folder.",
            rich_help_panel=_PANEL,
        ),
    ] = ""
    home: Annotated[
        Path | None,
        typer.Option(
            "--home",
            metavar="FOLDER",
            help="Data folder of the voda that runs here; by default VODA_HOME.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    ca: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="Trust this certificate of an https server.", rich_help_panel=_PANEL),
    ] = None


def provided(**options: object) -> dict[str, object]:
    """Return the options that the user gave."""
    return {name: value for name, value in options.items() if value is not None}


def asks_server(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of `ServerOptions` in place of its first parameter."""
    _, *own = inspect.signature(command).parameters.values()
    shared = inspect.signature(ServerOptions).parameters.values()

    def run(**values: object) -> None:
        where = ServerOptions(**{field.name: values.pop(field.name) for field in fields(ServerOptions)})  # type: ignore[arg-type]
        command(where, **values)

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *shared)]
    vars(run).update(__signature__=inspect.Signature(parameters), __name__=command.__name__, __doc__=command.__doc__)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
