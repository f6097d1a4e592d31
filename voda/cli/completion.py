"""What the shell completes: names that the server knows.

Rule: completion never fails and never waits long: without an answer within a second there are no suggestions.
"""

from pathlib import Path

import click

from voda.cli.options import ServerOptions
from voda.domain.errors import VodaError

_LIMIT_S = 1.0


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
    import msgspec

    from voda.cli.http.client import call_server

    try:
        body = call_server(_where(ctx), lambda client: client.get(path, params), timeout_s=_LIMIT_S)
        found = [str(item[field]) for item in msgspec.json.decode(body)["items"]]
    except (VodaError, OSError, ValueError, KeyError, TypeError):
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
