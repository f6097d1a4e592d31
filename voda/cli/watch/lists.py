"""The lists of jobs, nodes and pools: fetched page by page, and again whenever they change.

Rules: a list of one page keeps the server's bytes, a longer one those of its items; a job that was listed and ended
is listed once more as it ended.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from msgspec import Raw, Struct
from rich.text import Text

from voda.auth.callers import Caller
from voda.cli.http.client import Client, decode, resource_path
from voda.cli.render.job_text import exactly, has_ended
from voda.cli.render.tables import jobs_table, nodes_table, pools_table
from voda.cli.render.terminal import now
from voda.domain.errors import InvalidInput, NotFound
from voda.wire.jobs import ENDED, ArrayView, JobView
from voda.wire.pools import NodeList, NodeView, PoolList, PoolView

_PAGE = 100
_LATELY = timedelta(minutes=10)
_MOST_NAMED = 3
"""Failed jobs in one sentence."""
JobFilters = Mapping[str, str | list[str]]


class _RawPage(Struct):
    items: list[Raw]
    total: int
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedJobs:
    """Jobs, and the JSON of each."""

    items: Sequence[JobView]
    raw: Sequence[bytes]
    total: int
    """Of all that match on the server."""
    body: bytes


def fetch_jobs(client: Client, filters: JobFilters, *, limit: int) -> FetchedJobs:
    """Return the jobs that match, at most `limit`; 0 = all."""
    raw: list[bytes] = []
    token: str | None = None
    while True:
        size = min(_PAGE, limit - len(raw)) if limit else _PAGE
        query: dict[str, str | int | list[str]] = {**filters, "limit": size}
        body = client.get("/jobs", {**query, "continue": token} if token else query)
        page = decode(body, _RawPage)
        raw += [bytes(item) for item in page.items]
        if not page.next or not page.items or len(raw) == limit:
            return _jobs(raw, page.total, body if token is None else None)
        token = page.next


def fetch_named_jobs(client: Client, names: Sequence[str], filters: JobFilters | None = None) -> FetchedJobs:
    """Return these jobs, and the tasks of these arrays, those of them that match the filters."""
    raw: list[bytes] = []
    for name in names:
        try:
            raw += _matching(client, client.get(resource_path("jobs", name)), filters)
        except NotFound:
            found = fetch_jobs(client, {"array": name}, limit=0)
            if not found.items:
                raise
            raw += (fetch_jobs(client, {**filters, "array": name}, limit=0) if filters else found).raw
    return _jobs(raw, len(raw), raw[0] if len(raw) == len(names) == 1 else None)


def _matching(client: Client, job: bytes, filters: JobFilters | None) -> Sequence[bytes]:
    """Return the job, as the server has it now, where it matches the filters."""
    if not filters:
        return [job]
    named = decode(job, JobView)
    found = fetch_jobs(client, {**filters, "name": named.name}, limit=0)
    return [raw for each, raw in zip(found.items, found.raw, strict=True) if each.job_id == named.job_id]


def names_of_tasks(client: Client, names: Sequence[str]) -> Sequence[str]:
    """Return the names, with those of its tasks in place of that of an array; what is neither stays."""
    found: list[str] = []
    for name in names:
        try:
            client.get(resource_path("jobs", name))
            found.append(name)
        except NotFound:
            tasks = (fetch_jobs(client, {"array": name}, limit=0)).items
            found += map(exactly, tasks) if tasks else [name]
    return found


def fetch_array(client: Client, name: str) -> ArrayView:
    """Return an array by its name, or by its id with @ before it."""
    return decode(client.get(resource_path("arrays", name)), ArrayView)


def fetch_nodes(client: Client, names: Sequence[str], pool: str = "") -> tuple[Sequence[NodeView], bytes]:
    """Return all nodes, or this one, of a pool where one is named, and the server's bytes."""
    if names:
        body = client.get(resource_path("nodes", _one(names, "node")))
        node = decode(body, NodeView)
        return ([node], body) if pool in ("", node.pool) else ((), msgspec.json.encode(NodeList(items=())))
    body = client.get("/nodes", {"pool": pool} if pool else None)
    return decode(body, NodeList).items, body


def fetch_pools(client: Client, names: Sequence[str]) -> tuple[Sequence[PoolView], bytes]:
    """Return all pools, or this one, and the server's bytes."""
    if names:
        body = client.get(resource_path("pools", _one(names, "pool")))
        return [decode(body, PoolView)], body
    body = client.get("/pools")
    return decode(body, PoolList).items, body


def _one(names: Sequence[str], kind: str) -> str:
    if len(names) > 1:
        raise InvalidInput(f"one {kind} can be asked for at a time, or all of them; got {', '.join(names)}")
    return names[0]


def _jobs(raw: list[bytes], total: int, body: bytes | None) -> FetchedJobs:
    merged = b'{"items":[%s],"total":%d,"next":null}' % (b",".join(raw), total)
    return FetchedJobs(items=[decode(item, JobView) for item in raw], raw=raw, total=total, body=body or merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list as it is now."""

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


ListSource = Callable[[Client], Listing]


class JobSource:
    """Jobs by name, or all that match the filters of GET /jobs, at most `limit`; 0 = all."""

    has_groups = False
    """Whether the table has one line for all tasks of an array."""
    names_failures = False
    """Whether a list of live jobs names those that failed lately."""
    is_mine = False
    """Whether only the caller's are listed."""

    def __init__(self, names: Sequence[str], filters: JobFilters, *, limit: int = 0, live_first: bool = False) -> None:
        self._names = names
        self._filters = filters
        self._limit = limit
        self._live_first = live_first
        self._listed: dict[str, bytes] = {}
        """Those of the last call, and how those that are gone from the list ended."""

    def __call__(self, client: Client) -> Listing:
        """Return the jobs as they are now."""
        if self.is_mine and "user" not in self._filters:
            self._filters = {**self._filters, "user": decode(client.get("/whoami"), Caller).user}
        found = self._jobs(client)
        raw = {job.job_id: item for job, item in zip(found.items, found.raw, strict=True)}
        ended = self._gone(client, raw)
        self._listed = {**raw, **ended}
        items = [*found.items, *(decode(item, JobView) for item in ended.values())]
        more = found.total - len(found.items)
        arrays = self._arrays(client, items)
        return Listing(
            names=[job.job_id for job in items],
            raw=list(self._listed.values()),
            marks=[job.revision for job in items],
            body=found.body,
            lines=lambda wide, width: jobs_table(items, now(), wide=wide, width=width, arrays=arrays),
            note="; ".join(filter(None, (_note(items, self._filters, more), self._failures(client)))),
            is_over=bool(self._names) and all(map(has_ended, items)),
        )

    def _failures(self, client: Client) -> str:
        """Name the caller's jobs that failed lately, an admin's all, where only live jobs are listed."""
        if not self.names_failures or self._filters.get("phase") != ["live"]:
            return ""
        filters: JobFilters = {**self._filters, "phase": "Failed", "sort": "-submitted_at"}
        failed = (fetch_jobs(client, filters, limit=_PAGE)).items
        if not failures_note(failed, now()):
            return ""
        caller = decode(client.get("/whoami"), Caller)
        return failures_note([job for job in failed if caller.role == "admin" or job.user == caller.user], now())

    def _arrays(self, client: Client, items: Sequence[JobView]) -> Mapping[str, ArrayView]:
        """Return the arrays that get one line each, by their ids."""
        ids = dict.fromkeys(job.array.array_id for job in items if job.array is not None)
        return {array_id: fetch_array(client, f"@{array_id}") for array_id in ids} if self.has_groups else {}

    def _jobs(self, client: Client) -> FetchedJobs:
        if self._names:
            return fetch_named_jobs(client, self._names, self._filters)
        if not self._live_first:
            return fetch_jobs(client, self._filters, limit=self._limit)
        live = fetch_jobs(client, {**self._filters, "phase": "live"}, limit=self._limit)
        rest = self._limit - len(live.items)
        if self._limit and not rest:
            return live
        past: JobFilters = {"sort": "-submitted_at", **self._filters, "phase": [str(one) for one in sorted(ENDED)]}
        ended = fetch_jobs(client, past, limit=rest if self._limit else 0)
        return FetchedJobs(
            items=[*live.items, *ended.items],
            raw=[*live.raw, *ended.raw],
            total=live.total + ended.total,
            body=live.body,
        )

    def _gone(self, client: Client, listed: dict[str, bytes]) -> dict[str, bytes]:
        """Return the jobs of the last call that are not listed any more, as they are now."""
        missing = [job_id for job_id in self._listed if job_id not in listed]
        known = {job_id: self._listed[job_id] for job_id in missing}
        live = [job_id for job_id, item in known.items() if not has_ended(decode(item, JobView))]
        fresh = fetch_named_jobs(client, [f"@{job_id}" for job_id in live])
        return {**known, **dict(zip(live, fresh.raw, strict=True))}


def list_nodes(client: Client, *, names: Sequence[str], pool: str) -> Listing:
    """Return the nodes: all, those of a pool, or one."""
    items, body = fetch_nodes(client, names, pool)
    raw = [msgspec.json.encode(node) for node in items]
    return Listing(
        names=[node.name for node in items],
        raw=raw,
        marks=raw,
        body=body,
        lines=lambda wide, width: nodes_table(items, wide=wide, width=width),
        note="" if items else "there is no node",
    )


def list_pools(client: Client, *, names: Sequence[str], pool: str = "") -> Listing:
    """Return the pools: all, or one, where it is `pool` if that is given."""
    items, body = fetch_pools(client, names)
    if pool and (len(items) > 1 or pool != items[0].name):
        items = [one for one in items if one.name == pool]
        body = msgspec.json.encode(PoolList(items=tuple(items)))
    return Listing(
        names=[pool.name for pool in items],
        raw=[msgspec.json.encode(pool) for pool in items],
        marks=[pool.revision for pool in items],
        body=body,
        lines=lambda wide, width: pools_table(items, wide=wide, width=width),
        note="" if items else "there is no such pool",
    )


def failures_note(failed: Sequence[JobView], at: datetime) -> str:
    """Return a sentence that names the jobs that failed in the last minutes; empty: none."""
    ids = [job.job_id for job in failed if job.finished_at is not None and at - job.finished_at <= _LATELY]
    if not ids:
        return ""
    others = f" and {len(ids) - _MOST_NAMED:,} more" if len(ids) > _MOST_NAMED else ""
    return f"failed lately: {', '.join(ids[:_MOST_NAMED])}{others} (voda describe {ids[0]})"


def _note(items: Sequence[JobView], filters: JobFilters, more: int) -> str:
    if more > 0:
        return f"{more:,} more match; --limit 0 lists them all"
    if items:
        return ""
    if filters.get("phase") == ["Submitted", "Waiting"]:
        return "no job waits"
    return "no live job; --all lists those that ended too" if filters.get("phase") == ["live"] else "no job matches"
