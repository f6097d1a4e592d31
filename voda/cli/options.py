"""What commands share: the options of those that ask the server, and what the shell completes.

Rule: completion never fails and never waits long: without an answer within a second there are no suggestions.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import click

from voda.cli.parameters import Option
from voda.domain.errors import VodaError

_LIMIT_S = 1.0

Output = Literal["table", "wide", "json", "yaml", "name"]
OutputOption = Annotated[
    Output,
    Option("--output", "-o", help="For people (table, wide), for programs (json, yaml), or the names alone."),
]
SlotsOption = Annotated[int | None, Option("--slots", help="CPU slots to offer.", default_text="one per core")]
MachinePoolOption = Annotated[str, Option("--pool", help="Name of the pool of this machine.")]
_LONGEST_EXEC_S = 31_536_000
"""A year."""
ExecIdleOption = Annotated[
    float,
    Option(
        "--exec-idle",
        min=1,
        max=_LONGEST_EXEC_S,
        help="An exec ends after so long without input or output.",
        is_span=True,
    ),
]
ExecTimeOption = Annotated[
    float, Option("--exec-time", min=1, max=_LONGEST_EXEC_S, help="The longest that an exec may take.", is_span=True)
]
EXEC_IDLE_S, EXEC_TIME_S = 14_400.0, 86_400.0
JOB_HELP = "NAME (your live job, else your latest; only without one another user's), OWNER/NAME or @ID."
SelectorOption = Annotated[
    str, Option("--selector", "-l", metavar="LABELS", help="Only jobs with these labels: k=v,k2!=v.")
]
YesOption = Annotated[bool, Option("--yes", "-y", help="Do not ask before a job of another user is changed.")]
VerboseOption = Annotated[bool, Option("--verbose", "-v", help="Log what voda decides and does.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    PANEL: ClassVar = "Server"

    server: Annotated[
        str,
        Option(
            "--server", metavar="URL", help="Or unix:///PATH; by default VODA_SERVER, else the voda that runs here."
        ),
    ] = ""
    token: Annotated[
        str,
        Option("--token", metavar="TOKEN", help="By default VODA_TOKEN, else the admin token in the data folder."),
    ] = ""
    home: Annotated[
        Path | None,
        Option("--home", metavar="FOLDER", help="Data folder of a voda that runs here; default VODA_HOME."),
    ] = None
    ca: Annotated[Path | None, Option("--ca", metavar="FILE", help="Trust this certificate of an https server.")] = None
    context: Annotated[
        str, Option("--context", metavar="NAME", help="Ask the voda of this cluster of your kubeconfig, by kubectl.")
    ] = ""


def is_kubectl_plugin() -> bool:
    """Return whether kubectl runs this program, as `kubectl voda`: it calls its plug-ins kubectl-NAME."""
    return os.path.basename(sys.argv[0]).startswith("kubectl-")


def provided(**options: object) -> dict[str, object]:
    """Return the options that the user gave."""
    return {name: value for name, value in options.items() if value is not None}


def live_jobs(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the live jobs whose names begin with the text."""
    return _names_from_server(ctx, "/jobs", "job_id", incomplete, phase="live")


def all_jobs(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the jobs, ended ones included, whose names begin with the text."""
    return _names_from_server(ctx, "/jobs", "job_id", incomplete, sort="-submitted_at")


def things(ctx: click.Context, incomplete: str) -> list[str]:
    """Return what `voda get` can list: kinds, or after a kind the things of that kind."""
    kind = next(iter(ctx.params.get("what") or ()), "")
    if kind.startswith("node"):
        return complete_nodes(ctx, incomplete)
    if kind.startswith("pool"):
        return complete_pools(ctx, incomplete)
    kinds = [] if kind else [word for word in ("jobs", "nodes", "pools") if word.startswith(incomplete)]
    return [*kinds, *all_jobs(ctx, incomplete)]


def complete_nodes(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the nodes whose names begin with the text."""
    return _names_from_server(ctx, "/nodes", "name", incomplete)


def complete_pools(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the pools whose names begin with the text."""
    return _names_from_server(ctx, "/pools", "name", incomplete)


def complete_virtual_clusters(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the virtual clusters whose names begin with the text."""
    return _names_from_server(ctx, "/virtual-clusters", "name", incomplete)


def complete_policies(_: click.Context, incomplete: str) -> list[str]:
    """Return the policies whose names begin with the text."""
    from voda.policies import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]


def _names_from_server(ctx: click.Context, path: str, field: str, incomplete: str, **params: str) -> list[str]:
    import asyncio

    try:
        found = asyncio.run(_names(_where(ctx), path, field, params))
    except (VodaError, TimeoutError, OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in found if name.startswith(incomplete)]


def _where(ctx: click.Context) -> ServerOptions:
    home, ca = ctx.params.get("home"), ctx.params.get("ca")
    return ServerOptions(
        server=ctx.params.get("server") or "",
        token=ctx.params.get("token") or "",
        home=Path(home) if home else None,
        ca=Path(ca) if ca else None,
        context=ctx.params.get("context") or "",
    )


async def _names(where: ServerOptions, path: str, field: str, params: dict[str, str]) -> list[str]:
    import asyncio

    import msgspec

    from voda.cli.http.client import open_client

    async with asyncio.timeout(_LIMIT_S), open_client(where) as client:
        body = await client.get(path, params)
    return [str(item[field]) for item in msgspec.json.decode(body)["items"]]
