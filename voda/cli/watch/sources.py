"""What a list shows, asked of the server again and again: jobs, nodes, pools.

Rule: a job that was listed and ended is listed once more as it ended; it does not just vanish.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from rich.text import Text

from voda.api.schemas.jobs import JobView
from voda.cli.http.client import Client
from voda.cli.render.job_text import ENDED, has_ended
from voda.cli.render.tables import jobs_table, nodes_table, pools_table
from voda.cli.render.times import now
from voda.cli.watch import pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One look at a list."""

    names: Sequence[str]
    raw: Sequence[bytes]
    """JSON of each item."""
    marks: Sequence[object]
    """Of each item; it has changed where its mark has."""
    body: bytes
    lines: Callable[[bool, int | None], list[Text]]
    """(wide, width) -> the table, heads first."""
    note: str = ""
    """What to tell beside the list."""
    is_over: bool = False
    """Whether nothing of it will change any more."""


class Source(Protocol):
    """A list."""

    async def look(self, client: Client) -> Found:
        """Return what is there now."""
        ...


class JobSource:
    """Jobs by name, or all that match.

    Args:
        names: ids or names; empty = all that match.
        filters: of GET /jobs.
        limit: most jobs; 0 = all.
        live_first: list the live ones before those that ended.
    """

    def __init__(
        self, names: Sequence[str], filters: pages.Filters, *, limit: int = 0, live_first: bool = False
    ) -> None:
        self._names = names
        self._filters = filters
        self._limit = limit
        self._live_first = live_first
        self._listed: dict[str, bytes] = {}
        """Those of the last look, and how those that are gone from the list ended."""

    async def look(self, client: Client) -> Found:
        """Return the jobs now."""
        found = await self._jobs(client)
        raw = {job.job_id: item for job, item in zip(found.items, found.raw, strict=True)}
        ended = await self._gone(client, raw)
        self._listed = {**raw, **ended}
        items = [*found.items, *(msgspec.json.decode(item, type=JobView) for item in ended.values())]
        more = found.total - len(found.items)
        return Found(
            names=[job.job_id for job in items],
            raw=list(self._listed.values()),
            marks=[job.revision for job in items],
            body=found.body,
            lines=lambda wide, width: jobs_table(items, now(), wide=wide, width=width),
            note=_note(items, self._filters, more),
            is_over=bool(self._names) and all(map(has_ended, items)),
        )

    async def _jobs(self, client: Client) -> pages.Jobs:
        if self._names:
            return await pages.named_jobs(client, self._names)
        if not self._live_first:
            return await pages.jobs(client, self._filters, limit=self._limit)
        live = await pages.jobs(client, {**self._filters, "phase": "live"}, limit=self._limit)
        rest = self._limit - len(live.items)
        if self._limit and not rest:
            return live
        past: pages.Filters = {
            "sort": "-submitted_at",
            **self._filters,
            "phase": [str(phase) for phase in sorted(ENDED)],
        }
        ended = await pages.jobs(client, past, limit=rest if self._limit else 0)
        return pages.Jobs(
            items=[*live.items, *ended.items],
            raw=[*live.raw, *ended.raw],
            total=live.total + ended.total,
            body=live.body,
        )

    async def _gone(self, client: Client, listed: dict[str, bytes]) -> dict[str, bytes]:
        """Return the jobs of the last look that are not listed any more, as they are now."""
        missing = [job_id for job_id in self._listed if job_id not in listed]
        known = {job_id: self._listed[job_id] for job_id in missing}
        live = [job_id for job_id, item in known.items() if not has_ended(msgspec.json.decode(item, type=JobView))]
        fresh = await pages.named_jobs(client, live)
        return {**known, **dict(zip(live, fresh.raw, strict=True))}


class NodeSource:
    """Nodes: all, those of a pool, or one."""

    def __init__(self, names: Sequence[str], pool: str) -> None:
        self._names = names
        self._pool = pool

    async def look(self, client: Client) -> Found:
        """Return the nodes now."""
        items, body = await pages.nodes(client, self._names, self._pool)
        raw = [msgspec.json.encode(node) for node in items]
        return Found(
            names=[node.name for node in items],
            raw=raw,
            marks=raw,
            body=body,
            lines=lambda wide, width: nodes_table(items, wide=wide, width=width),
            note="" if items else "there is no node",
        )


class PoolSource:
    """Pools: all, or one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    async def look(self, client: Client) -> Found:
        """Return the pools now."""
        items, body = await pages.pools(client, self._names)
        raw = [msgspec.json.encode(pool) for pool in items]
        return Found(
            names=[pool.name for pool in items],
            raw=raw,
            marks=[pool.revision for pool in items],
            body=body,
            lines=lambda wide, width: pools_table(items, wide=wide, width=width),
        )


def _note(items: Sequence[JobView], filters: pages.Filters, more: int) -> str:
    if more > 0:
        return f"{more:,} more match; --limit 0 lists them all"
    if items:
        return ""
    return "no live job; --all lists those that ended too" if filters.get("phase") == ["live"] else "no such job"
