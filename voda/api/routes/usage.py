"""Accounting: who used how many GPUs, how long jobs waited, and how they ended.

Rule: admins and viewers see everybody, users themselves.
"""

import asyncio
from dataclasses import dataclass
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.operation import Operation, Response, Routes
from voda.api.presenters.usage import usage_of
from voda.api.requests import json_response, query_of
from voda.application.journal import Journal
from voda.auth.callers import Caller
from voda.domain.errors import InvalidField, InvalidInput, NotAllowed
from voda.projections.usage import UsageKey
from voda.timetravel.accounting import instant_of, usage_between
from voda.wire.housekeeping import UsageView


class UsageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose usage, of when, and summed by what."""

    user: Annotated[str, Meta(description="Only the jobs of this user.", max_length=253)] = ""
    since: Annotated[
        str, Meta(description="A time (2026-01-31T12:00:00Z) or a span before now (30d, 12h).", max_length=80)
    ] = "30d"
    until: Annotated[str, Meta(description="The same; by default now.", max_length=80)] = ""
    by: Annotated[UsageKey, Meta(description="What a row is about; days are in UTC.")] = "user"


@dataclass
class UsageRoutes(Routes):
    """The operation on usage."""

    tag = "Usage"

    journal: Journal

    @Operation(
        "GET",
        "/api/v1/usage",
        description="Folded from the log. What runs counts up to `until`; users see their own jobs alone.",
        query=UsageQuery,
        answers=[Response(of=UsageView)],
        problems=[410, 503],
        takes_turns=True,
    )
    async def get_usage(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Get the usage of GPUs in a window of time."""
        query, now = query_of(request, UsageQuery), self.journal.clock.now()
        user = _user_of(query, caller)
        since, until = _instant("since", query.since, now), min(_instant("until", query.until, now), now)
        if since >= until:
            raise InvalidField("since", "since: expected a time before `until`, and in the past")
        usage = await usage_between(self.journal.store, since, until, user=user)
        return json_response(await asyncio.to_thread(usage_of, usage, query.by, user))


def _user_of(query: UsageQuery, caller: Caller) -> str:
    if caller.role != "user" or query.user == caller.user:
        return query.user
    if query.user:
        raise NotAllowed(f"you see your own usage alone: leave user out, or ask an admin for {query.user[:80]!r}'s")
    return caller.user


def _instant(field: str, text: str, now: float) -> float:
    try:
        return instant_of(text, now) if text else now
    except InvalidInput as error:
        raise InvalidField(field, f"{field}: {error}") from error
