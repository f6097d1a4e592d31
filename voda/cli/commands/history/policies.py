"""`voda policies`: what can be put after `--policy`, and where each rule comes from."""

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from voda.policies.base import Policy

_HELP = """
List the policies with their papers.

A policy says how many replicas each job gets. One file in voda/policies/
adds one.

\b
Examples:
  voda policies
  voda policies -o json
"""


class PolicyOutput(enum.StrEnum):
    """How the list is printed."""

    TABLE = "table"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("policies", help=_HELP)(list_policies)


def list_policies(
    output: Annotated[
        PolicyOutput, typer.Option("--output", "-o", help="For people or for programs.")
    ] = PolicyOutput.TABLE,
) -> None:
    """Print name, title and paper of every policy."""
    from voda.policies.registry import policies

    known = policies()
    if output is PolicyOutput.JSON:
        print(_as_json(known))
    else:
        _show(known)


def _as_json(known: "Mapping[str, Policy]") -> str:
    import msgspec

    rows = [{"name": name, "title": policy.title, "paper": policy.paper} for name, policy in known.items()]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def _show(known: "Mapping[str, Policy]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column("policy", no_wrap=True, style="bold")
    table.add_column("what it does, and its paper")
    for name, policy in known.items():
        table.add_row(name, Text.assemble(policy.title, "\n", (policy.paper, "dim")))
    Console().print(table)
