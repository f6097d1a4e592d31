"""`voda nodes`: list nodes, show one with its GPUs, drain and undrain them."""

from functools import partial
from typing import Annotated, Any, Final

import click

from voda.cli.command_group import CommandGroup, HandWrapped, built, command
from voda.cli.commands.service.drain import drain, undrain
from voda.cli.completion import complete_nodes, complete_pools
from voda.cli.options import OutputOption, ServerOptions
from voda.cli.parameters import Argument, Option

_LIST: Final = "list"
_MOST_NAMED: Final = 400
"""Characters of the names of nodes, where one is missing."""
_HELP: Final = ("-h", "--help")


_HELP_TEXT: Final = """List nodes and their GPUs; move workers off a node.

Without a command it lists nodes; voda nodes list --help shows the options for that.

\b
Examples:
  voda nodes
  voda nodes -o wide --watch
"""


class _ListByDefault(CommandGroup):
    """A group whose first command is meant where none is named: `voda nodes -o json`."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.no_args_is_help = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names_none = not args or (args[0].startswith("-") and args[0] not in _HELP)
        return super().parse_args(ctx, [_LIST, *args] if names_none else args)


app = _ListByDefault("nodes", help=_HELP_TEXT)
app.add_command(built(drain, "drain"))
app.add_command(built(undrain, "undrain"))


@command(_LIST)
def list_nodes(
    where: ServerOptions,
    names: Annotated[
        list[str] | None, Argument(metavar="NODE", help="By default all.", autocompletion=complete_nodes)
    ] = None,
    pool: Annotated[str, Option("--pool", help="Only this pool.", autocompletion=complete_pools)] = "",
    watch: Annotated[bool, Option("--watch", "-w", help="Show it again whenever it changes.")] = False,
    output: OutputOption = "table",
) -> None:
    """List nodes with their GPUs and who holds them, as voda get nodes does; the word list may be left out.

    Of nodes whose GPUs pods share it says how many GPUs are shared, and how
    many milli (of 1,000 for each GPU) are left on those.

    \b
    Examples:
      voda nodes
      voda nodes -o wide --watch
    """
    from voda.cli.watch import lists
    from voda.cli.watch.refresh import show_list

    show_list(where, partial(lists.list_nodes, names=names or (), pool=pool), output, watches=watch)


class _NodeCommand(HandWrapped):
    """A command that, where its node is missing, says which ones there are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            known = ", ".join(complete_nodes(ctx, ""))
            if not known:
                raise
            raise click.UsageError(f"Missing argument 'NODE'. Known: {known[:_MOST_NAMED]}.", ctx) from error


@command("describe", cls=_NodeCommand)
def describe(
    where: ServerOptions,
    node: Annotated[str, Argument(help="Its name.", autocompletion=complete_nodes)],
    output: OutputOption = "table",
) -> None:
    """Show one node: its GPUs, its jobs, and what is free of each of its GPUs and who shares it.

    GPUs that pods claim have the names of the devices that their driver
    publishes. With -o wide, no name is cut.

    \b
    Examples:
      voda nodes describe gpu-1
      voda nodes describe gpu-1 -o wide
      voda nodes describe gpu-1 -o json
    """
    from voda.cli.http.client import call_server
    from voda.cli.render.node_details import node_text
    from voda.cli.render.terminal import print_answer, show_lines
    from voda.cli.watch.lists import fetch_nodes

    (found,), body = call_server(where, lambda client: fetch_nodes(client, [node]))
    if output not in ("table", "wide"):
        print_answer(body, output, [found.name])
        return
    show_lines(lambda width: node_text(found, width=width if output == "table" else None))
