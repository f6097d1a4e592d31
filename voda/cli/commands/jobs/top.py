"""`voda top`: a live screen of GPUs, jobs, queue and the last decisions."""

from typing import Annotated

import typer

from voda.cli.completion import pools as complete_pools
from voda.cli.options import ServerOptions, asks_server

_HELP = """
Show a live screen: GPUs and their jobs, running and waiting jobs, decisions.

Each GPU shows the letter of its job; `.` is free, `#` is used by others.
Press q to quit. Without a terminal, the screen is printed once.

\b
Examples:
  voda top
  voda top --pool a100
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("top", help=_HELP)(asks_server(top))


def top(
    where: ServerOptions,
    pool: Annotated[str, typer.Option("--pool", help="Only this pool.", autocompletion=complete_pools)] = "",
) -> None:
    """Show the screen."""
    from voda.cli.http.client import call_server
    from voda.cli.top.loop import LiveScreen

    call_server(where, LiveScreen(pool).run)
