"""What all commands share: how they are marked, the options of those that ask the server, and shell completion.

Rules: a command's docstring is its help; a parameter that is a dataclass stands for a group of options, one per field.
Completion never fails and never waits long: without an answer within a second there are no suggestions.
"""

import inspect
import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import typer
from typer.core import TyperCommand

from voda.domain.errors import VodaError

Command = TypeVar("Command", bound=Callable[..., None])

_LIMIT_S = 1.0
_EXPECTED = (
    (r"Input should be a valid number", "a number"),
    (r"Input should be a valid integer", "a whole number"),
    (r"Input should be greater than or equal to (\S+)", r"\1 or more"),
    (r"Input should be less than or equal to (\S+)", r"\1 or less"),
    (r"Value error, .* is not one of (.*?)\.?$", r"one of \1"),
)
"""What typer's library says of a wrong value, and what voda says that it expects."""


Output = Literal["table", "wide", "json", "yaml", "name"]
OutputOption = Annotated[
    Output,
    typer.Option("--output", "-o", help="For people (table, wide), for programs (json, yaml), or the names alone."),
]
SlotsOption = Annotated[int | None, typer.Option("--slots", help="CPU slots to offer; by default one per core.")]
MachinePoolOption = Annotated[str, typer.Option("--pool", help="Name of the pool of this machine.")]
SelectorOption = Annotated[
    str, typer.Option("--selector", "-l", metavar="LABELS", help="Only jobs with these labels: k=v,k2!=v.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log what voda decides and does.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    PANEL: ClassVar = "Server"

    server: Annotated[
        str,
        typer.Option(
            "--server", metavar="URL", help="Or unix:///PATH; by default VODA_SERVER, else the voda that runs here."
        ),
    ] = ""
    token: Annotated[
        str,
        typer.Option(
            "--token", metavar="TOKEN", help="By default VODA_TOKEN, else the admin token in the data folder."
        ),
    ] = ""
    home: Annotated[
        Path | None,
        # Users pass through the folder of root's voda, though they cannot read it.
        typer.Option(
            "--home", metavar="FOLDER", readable=False, help="Data folder of a voda that runs here; default VODA_HOME."
        ),
    ] = None
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Trust this certificate of an https server.")
    ] = None


def provided(**options: object) -> dict[str, object]:
    """Return the options that the user gave."""
    return {name: value for name, value in options.items() if value is not None}


def command(
    name: str, *, cls: type[TyperCommand] | None = None, aliases: tuple[str, ...] = (), hidden: bool = False
) -> Callable[[Command], Command]:
    """Mark a function as the command of this name; `cls` reads its command line, and aliases are hidden in the help."""

    def mark(function: Command) -> Command:
        vars(function)["command_name"] = name
        vars(function)["command_class"] = cls
        vars(function)["command_names"] = {name: hidden, **dict.fromkeys(aliases, True)}
        return function

    return mark


class PlainCommand(TyperCommand):
    """A command that says in voda's words, instead of those of typer's library, which value an option expects."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; raises BadParameter."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _plain_words(error)
            raise


def _plain_words(error: typer.BadParameter) -> str:
    for pattern, words in _EXPECTED:
        if match := re.match(pattern, error.message):
            problems: list[dict[str, object]] = getattr(error.__cause__, "errors", list)()
            got = f", got {problems[0]['input']!r:.80}" if problems else ""
            return f"expected {match.expand(words)}".replace("'", "") + got
    return error.message


def add_commands(app: typer.Typer, module: ModuleType) -> None:
    """Add the commands and groups of commands that a module defines."""
    for one in vars(module).values():
        if isinstance(one, typer.Typer):
            for registered in one.registered_commands:
                registered.cls = PlainCommand
            app.add_typer(one)
        elif getattr(one, "command_name", "") and one.__module__ == module.__name__:
            run = _with_options(one)
            for name, hidden in one.command_names.items():
                app.command(name, help=inspect.getdoc(one), cls=one.command_class or PlainCommand, hidden=hidden)(run)


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the fields of each group of options in the group's place."""
    own = inspect.signature(function).parameters.values()
    groups: dict[str, Any] = {one.name: one.annotation for one in own if is_dataclass(one.annotation)}

    def run(**values: object) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        function(**values)

    expanded = [parameter for one in own for parameter in (_options(groups[one.name]) if one.name in groups else [one])]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in expanded]
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    """Return the options of a group, in the panel of `--help` that the group names."""
    options = []
    for option in inspect.signature(group).parameters.values():
        kind, declared = get_args(option.annotation)
        declared = copy(declared)
        declared.rich_help_panel = getattr(group, "PANEL", None)
        options.append(option.replace(annotation=Annotated[kind, declared]))
    return options


def live_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the live jobs whose names begin with the text."""
    return _names_from_server(ctx, "/jobs", "job_id", incomplete, phase="live")


def all_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs, ended ones included, whose names begin with the text."""
    return _names_from_server(ctx, "/jobs", "job_id", incomplete, sort="-submitted_at")


def things(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return what `voda get` can list: kinds, or after a kind the things of that kind."""
    kind = next(iter(ctx.params.get("what") or ()), "")
    if kind.startswith("node"):
        return _names_from_server(ctx, "/nodes", "name", incomplete)
    if kind.startswith("pool"):
        return complete_pools(ctx, incomplete)
    kinds = [] if kind else [word for word in ("jobs", "nodes", "pools") if word.startswith(incomplete)]
    return [*kinds, *all_jobs(ctx, incomplete)]


def complete_pools(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the pools whose names begin with the text."""
    return _names_from_server(ctx, "/pools", "name", incomplete)


def complete_policies(incomplete: str) -> list[str]:
    """Return the policies whose names begin with the text."""
    from voda.policies import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]


def _names_from_server(ctx: typer.Context, path: str, field: str, incomplete: str, **params: str) -> list[str]:
    import asyncio

    try:
        found = asyncio.run(_names(_where(ctx), path, field, params))
    except (VodaError, TimeoutError, OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in found if name.startswith(incomplete)]


def _where(ctx: typer.Context) -> ServerOptions:
    home, ca = ctx.params.get("home"), ctx.params.get("ca")
    return ServerOptions(
        server=ctx.params.get("server") or "",
        token=ctx.params.get("token") or "",
        home=Path(home) if home else None,
        ca=Path(ca) if ca else None,
    )


async def _names(where: ServerOptions, path: str, field: str, params: dict[str, str]) -> list[str]:
    import asyncio

    import msgspec

    from voda.cli.http.client import open_client

    async with asyncio.timeout(_LIMIT_S), open_client(where) as client:
        body = await client.get(path, params)
    return [str(item[field]) for item in msgspec.json.decode(body)["items"]]
