"""`voda nodes`: list nodes, show one with its cards or what is free of no use, drain and undrain them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from voda.cli.command_group import CommandGroup, HandWrapped, built, command
from voda.cli.commands.service.drain import drain, undrain
from voda.cli.options import Output, OutputOption, ServerOptions, complete_nodes, complete_pools
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.cli.http.client import Client

_LIST: Final = "list"
_MOST_NAMED: Final = 400
"""Characters of the names of nodes, where one is missing."""
_HELP: Final = ("-h", "--help")


_HELP_TEXT: Final = """List nodes and their cards; move workers off a node, or parts of cards together.

Without a command it lists nodes; voda nodes list --help shows the options for that.

\b
Examples:
  voda nodes
  voda nodes -o wide --watch
  voda nodes --fragmentation
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
def list_nodes(  # noqa: PLR0913 - which nodes, and how they are shown
    where: ServerOptions,
    names: Annotated[
        list[str] | None, Argument(metavar="NODE", help="By default all.", autocompletion=complete_nodes)
    ] = None,
    pool: Annotated[str, Option("--pool", help="Only this pool.", autocompletion=complete_pools)] = "",
    watch: Annotated[bool, Option("--watch", "-w", help="Show it again whenever it changes.")] = False,
    fragmentation: Annotated[
        bool, Option("--fragmentation", help="What is free of cards that pods share, and of use to which pods.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """List nodes with their GPUs and who holds them, as voda get nodes does; the word list may be left out.

    Of nodes whose cards pods share it says how many cards are shared, and how
    many milli (of 1,000 for each card) are left on those.

    With --fragmentation: how many milli of each node's cards are free, how many
    of these the next pod cannot use if it asks for what those with shares have
    (the fragment), and which kinds of pods can use how much.

    \b
    Examples:
      voda nodes
      voda nodes -o wide --watch
      voda nodes --fragmentation
    """
    from voda.cli.http.client import call_server
    from voda.cli.watch import lists, refresh

    if fragmentation:
        if names or watch:
            raise InvalidInput(
                "--fragmentation tells of whole pools, once: leave out names and --watch; --pool POOL is one"
            )
        call_server(where, lambda client: _fragmentation(client, pool, output))
        return
    if watch and output == "yaml":
        raise InvalidInput("--watch prints a table, names, or JSON with a line for each change: choose another -o")
    chosen: Sequence[str] = names or ()
    run = refresh.watch if watch else refresh.show
    call_server(where, lambda client: run(client, partial(lists.list_nodes, names=chosen, pool=pool), output))


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
    """Show one node: its GPUs, its jobs, and what is free of each of its cards and who shares it.

    Cards that pods claim have the names of the devices that their driver
    publishes. With -o wide, no name is cut.

    \b
    Examples:
      voda nodes describe gpu-1
      voda nodes describe gpu-1 -o wide
      voda nodes describe gpu-1 -o json
    """
    from voda.cli.http.client import call_server

    call_server(where, lambda client: _describe(client, node, output))


@command("defragment")
def defragment(
    where: ServerOptions,
    pool: Annotated[str, Option("--pool", help="Only this pool.", autocompletion=complete_pools)] = "",
    moves: Annotated[int, Option("--moves", min=1, max=500, help="Most moves, of each pool.")] = 10,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would move, and move nothing.")] = False,
    output: OutputOption = "table",
) -> None:
    """Move parts of cards together, so that whole cards become free; for operators.

    Only what its user lets voda restart is moved: jobs submitted with
    --restartable, and pods that claim a part of a card, have a controller and
    the annotation voda.dev/restartable: "true". They are ended one after the
    other and start anew elsewhere; voda events shows how far that is. Until all
    have moved, or for ten minutes, no part comes to the cards that become whole.

    \b
    Examples:
      voda nodes defragment --dry-run
      voda nodes defragment --moves 3
    """
    from voda.cli.http.client import call_server

    query = {"moves": str(moves), **({"pool": pool} if pool else {}), **({"dry_run": "true"} if dry_run else {})}
    call_server(where, lambda client: _defragment(client, query, output))


async def _describe(client: "Client", name: str, output: Output) -> None:
    from voda.cli.render.node_details import node_text
    from voda.cli.render.terminal import console, print_answer
    from voda.cli.watch.lists import fetch_nodes

    (node,), body = await fetch_nodes(client, [name])
    screen = console()
    if output not in ("table", "wide"):
        print_answer(body, output, [node.name])
        return
    for line in node_text(node, width=screen.width if screen.is_terminal and output == "table" else None):
        screen.print(line, soft_wrap=True)


async def _defragment(client: "Client", query: Mapping[str, str], output: Output) -> None:
    from voda.api.schemas.defragmentation import DefragmentationList
    from voda.cli.http.client import decode
    from voda.cli.render.fragmentation import defragmentation_text
    from voda.cli.render.terminal import console, print_answer

    # Not asked again where an answer is lost: then it is in force, and a second request is refused.
    body = (await client.ask("POST", "/defragmentation", params=dict(query))).body
    items, screen = decode(body, DefragmentationList).items, console()
    if output not in ("table", "wide"):
        print_answer(body, output, [move.pod for each in items for move in each.moves])
        return
    for line in defragmentation_text(items, width=screen.width if screen.is_terminal and output == "table" else None):
        screen.print(line, soft_wrap=True)


async def _fragmentation(client: "Client", pool: str, output: Output) -> None:
    from voda.api.schemas.fragmentation import FragmentationList
    from voda.cli.http.client import decode
    from voda.cli.render.fragmentation import fragmentation_text
    from voda.cli.render.terminal import console, print_answer

    body = await client.get("/fragmentation", {"pool": pool} if pool else None)
    items, screen = decode(body, FragmentationList).items, console()
    if output not in ("table", "wide"):
        print_answer(body, output, [node.node for each in items for node in each.nodes])
        return
    for line in fragmentation_text(items, width=screen.width if screen.is_terminal and output == "table" else None):
        screen.print(line, soft_wrap=True)
