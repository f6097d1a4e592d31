"""`voda top`: a live screen of GPUs, jobs, queue and the last decisions."""

from typing import Annotated

from voda.cli.command_group import command
from voda.cli.completion import complete_pools
from voda.cli.options import SelectorOption, ServerOptions
from voda.cli.parameters import Option


@command("top")
def top(
    where: ServerOptions,
    pool: Annotated[str, Option("--pool", help="Only this pool.", autocompletion=complete_pools)] = "",
    selector: SelectorOption = "",
) -> None:
    """Show a live screen: GPUs and their jobs, running and waiting jobs, decisions.

    Each GPU shows the letter of its job; `.` is free, `#` is used by others.
    Press q to quit. Without a terminal, the screen is printed once.

    \b
    Examples:
      voda top
      voda top --pool a100 -l team=vision
    """
    from voda.cli.http.client import call_server
    from voda.cli.watch.top_loop import LiveScreen

    call_server(where, LiveScreen(pool, selector).run)
