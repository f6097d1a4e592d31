"""Lists as the server gives them: page by page, decoded for people and raw for programs.

Rule: a list of one page keeps the server's bytes; a longer one keeps those of its items.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Raw, Struct

from voda.api.schemas.jobs import JobView
from voda.api.schemas.pools import NodeList, NodeView, PoolList, PoolView
from voda.cli.http.client import Client, decoded, path
from voda.domain.errors import InvalidInput

_PAGE = 100
Filters = Mapping[str, str | list[str]]


class _Page(Struct):
    """A page of jobs, not looked into."""

    items: list[Raw]
    total: int
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Jobs that were asked for."""

    items: Sequence[JobView]
    raw: Sequence[bytes]
    """Of each item."""
    total: int
    """That there are, on the server."""
    body: bytes


async def jobs(client: Client, filters: Filters, *, limit: int) -> Jobs:
    """Return the jobs that match, at most `limit`; 0 = all."""
    raw: list[bytes] = []
    token: str | None = None
    while True:
        size = min(_PAGE, limit - len(raw)) if limit else _PAGE
        query: dict[str, str | int | list[str]] = {**filters, "limit": size}
        body = await client.get("/jobs", {**query, "continue": token} if token else query)
        page = decoded(body, _Page)
        raw += [bytes(item) for item in page.items]
        if not page.next or not page.items or len(raw) == limit:
            is_whole = token is None
            return _jobs(raw, page.total, body if is_whole else None)
        token = page.next


async def named_jobs(client: Client, names: Sequence[str]) -> Jobs:
    """Return these jobs; an id, or a name for the latest job of that name."""
    raw = [await client.get(path("jobs", name)) for name in names]
    return _jobs(raw, len(raw), raw[0] if len(raw) == 1 else None)


async def nodes(client: Client, names: Sequence[str], pool: str = "") -> tuple[Sequence[NodeView], bytes]:
    """Return all nodes, or these, and the server's bytes."""
    if names:
        body = await client.get(path("nodes", _one(names, "node")))
        return [decoded(body, NodeView)], body
    body = await client.get("/nodes", {"pool": pool} if pool else None)
    return decoded(body, NodeList).items, body


async def pools(client: Client, names: Sequence[str]) -> tuple[Sequence[PoolView], bytes]:
    """Return all pools, or this one, and the server's bytes."""
    if names:
        body = await client.get(path("pools", _one(names, "pool")))
        return [decoded(body, PoolView)], body
    body = await client.get("/pools")
    return decoded(body, PoolList).items, body


def _one(names: Sequence[str], kind: str) -> str:
    if len(names) > 1:
        raise InvalidInput(f"one {kind} can be asked for at a time, or all of them; got {', '.join(names)}")
    return names[0]


def _jobs(raw: list[bytes], total: int, body: bytes | None) -> Jobs:
    merged = b'{"items":[%s],"total":%d,"next":null}' % (b",".join(raw), total)
    return Jobs(items=[decoded(item, JobView) for item in raw], raw=raw, total=total, body=body or merged)
