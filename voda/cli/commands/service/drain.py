"""`voda drain` and `voda undrain`: have a node's workers moved elsewhere, and let them come again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from voda.cli.command_group import command
from voda.cli.completion import complete_nodes
from voda.cli.options import Output, OutputOption, ServerOptions
from voda.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from voda.cli.http.client import Client
    from voda.wire.pools import NodeView

NodesArgument = Annotated[list[str], Argument(help="The nodes.", autocompletion=complete_nodes)]


_MOST_NAMES: Final = 3


@command("drain", hidden=True)
def drain(
    where: ServerOptions,
    nodes: NodesArgument,
    reason: Annotated[str, Option("--reason", help="Why; the log keeps it.")] = "",
    output: OutputOption = "table",
) -> None:
    """Move all workers off nodes, for instance before they are repaired.

    The next plan moves them to other nodes, where their jobs go on from their
    checkpoints; jobs that find no room elsewhere wait. No plan brings workers
    to the nodes before voda nodes undrain. Pods and processes of others stay.

    \b
    Examples:
      voda nodes drain gpu-1 --reason "new fan"
      voda nodes -w
      voda nodes undrain gpu-1
    """
    from voda.cli.http.client import call_server

    query = {"reason": reason} if reason else {}
    call_server(where, lambda client: _ask_each(client, nodes, NodeRequest("drain", query, _drained), output))


@command("undrain", hidden=True)
def undrain(where: ServerOptions, nodes: NodesArgument, output: OutputOption = "table") -> None:
    """Let plans put workers on nodes again.

    \b
    Example:
      voda nodes undrain gpu-1
    """
    from voda.cli.http.client import call_server

    call_server(where, lambda client: _ask_each(client, nodes, NodeRequest("undrain", {}, _undrained), output))


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What is asked of each node, and what its answer comes to, also by the other nodes of its pool."""

    verb: str
    query: dict[str, str]
    sentence: "Callable[[NodeView, Sequence[NodeView]], str]"


def _ask_each(client: "Client", nodes: Sequence[str], request: NodeRequest, output: Output) -> None:
    from voda.cli.http.client import HttpCall, decode, for_each, resource_path
    from voda.cli.render.terminal import plain, print_answer
    from voda.cli.watch.lists import fetch_nodes
    from voda.wire.pools import NodeView

    def ask(name: str) -> None:
        path = resource_path("nodes", name, request.verb)
        answer = client.ask_repeatedly(HttpCall(method="POST", path=path, params=request.query))
        node = decode(answer.body, NodeView)
        others = [each for each in (fetch_nodes(client, (), node.pool))[0] if each.name != node.name]
        print_answer(answer.body, output, [node.name], lambda: plain(request.sentence(node, others)))

    for_each(nodes, ask)


def _drained(node: "NodeView", others: Sequence["NodeView"]) -> str:
    from voda.text import counted

    if not node.jobs:
        return f"{node.name} is drained: no worker is on it"
    if node.staying:
        names = ", ".join(node.staying[:_MOST_NAMES]) + (" and others" if len(node.staying) > _MOST_NAMES else "")
        return f"{node.name} is being drained: it waits until {names}, not to be stopped, has ended; the others leave"
    jobs = counted(len(node.jobs), "job")
    if any(_takes_workers(other) for other in others):
        moved = f"the next plan moves {counted(node.used_gpus, 'GPU')} of {jobs} elsewhere"
        return f"{node.name} is being drained: {moved}; what finds no room there waits"
    return (
        f"{node.name} is being drained: no other node takes workers, so {jobs} will stop and wait until it is undrained"
        f" (voda nodes undrain {node.name})"
    )


def _takes_workers(node: "NodeView") -> bool:
    return node.is_ready and node.is_schedulable and not node.is_draining


def _undrained(node: "NodeView", _: Sequence["NodeView"]) -> str:
    if _takes_workers(node):
        return f"{node.name} takes workers again"
    why = "is silent" if not node.is_ready else "drains it" if node.is_draining else "has it cordoned"
    subject = "it" if not node.is_ready else "the cluster"
    return f"{node.name} is not drained by voda any more, but {subject} {why}"
