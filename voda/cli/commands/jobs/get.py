"""`voda get`: jobs, nodes and pools as lists."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.completion import pools as complete_pools
from voda.cli.completion import things
from voda.cli.options import Output, OutputOption, Where, asks_server

if TYPE_CHECKING:
    from voda.cli.watch.pages import Filters
    from voda.cli.watch.sources import Source

_HELP = """
List jobs, nodes or pools.

Live jobs are listed; with --all ended ones too. REPLICAS are the workers it
has / its minimum / its maximum; 2>3/1/4 has 2 and gets 3. QUEUE 1 is next.

\b
Examples:
  voda get
  voda get -o wide --watch
  voda get --all --sort -submitted_at --user ada
  voda get resnet-7 -o yaml
  voda get nodes
  voda get pools -o json
  voda delete $(voda get --phase Waiting -o name)
"""
_KINDS = {"job": "jobs", "jobs": "jobs", "node": "nodes", "nodes": "nodes", "pool": "pools", "pools": "pools"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("get", help=_HELP)(asks_server(get))


def get(  # noqa: PLR0913 - a command's options are its parameters
    where: Where,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="jobs|nodes|pools|NAME", help="By default jobs, all of them.", autocompletion=things),
    ] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="Ended jobs too, after the live ones.")] = False,
    phase: Annotated[
        list[str] | None, typer.Option("--phase", help="Jobs of this phase, or `live`; repeatable.")
    ] = None,
    pool: Annotated[str, typer.Option("--pool", help="Of this pool.", autocompletion=complete_pools)] = "",
    user: Annotated[str, typer.Option("--user", "-u", help="Jobs of this user.")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Jobs of this namespace.")] = "",
    sort: Annotated[
        str, typer.Option("--sort", metavar="[-]FIELD", help="submitted_at, priority, name, phase or replicas.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many jobs; 0 = all.")] = 500,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on showing what changes.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List what was asked for."""
    from voda.cli.http.client import answered
    from voda.cli.watch import listing
    from voda.domain.errors import InvalidInput

    if watch and output is Output.YAML:
        raise InvalidInput("--watch prints a table, names, or JSON with a line for each change: choose another -o")
    kind, names = _asked_for(what or ())
    filters = _given(pool=pool, user=user, namespace=namespace, sort=sort)
    phases = [_phase(word) for word in phase or ()] or ([] if every or names else ["live"])
    is_ordered = bool(sort) or output in (Output.JSON, Output.YAML)
    source = _source(kind, names, {**filters, **({"phase": phases} if phases else {})}, limit, every and not is_ordered)
    answered(where, lambda client: (listing.watch if watch else listing.show)(client, source, output))


def _phase(word: str) -> str:
    """Return a phase as it is spelled, whatever letters it was typed in."""
    return word.lower() if word.lower() == "live" else word.capitalize()


def _asked_for(what: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the kind and the names; `voda get jobs nodes` is the job called nodes."""
    if what and what[0] in _KINDS:
        return _KINDS[what[0]], tuple(what[1:])
    return "jobs", tuple(what)


def _given(**options: str) -> "Filters":
    return {name: value for name, value in options.items() if value}


def _source(kind: str, names: Sequence[str], filters: "Filters", limit: int, live_first: bool) -> "Source":
    from voda.cli.watch.sources import JobSource, NodeSource, PoolSource

    if kind == "nodes":
        return NodeSource(names, str(filters.get("pool", "")))
    if kind == "pools":
        return PoolSource(names)
    return JobSource(names, filters, limit=limit, live_first=live_first)
