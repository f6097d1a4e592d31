"""Requests that survive trouble: lost answers, batches in which one request fails, concurrent changes.

Rules: only idempotent requests are retried, and the user hears why it takes so long; one failure does not stop a
batch; a change applies to the version that was read before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from voda.backoff import delay_s
from voda.cli.http.client import Client, HttpAnswer, ServerUnreachable
from voda.cli.render.terminal import note
from voda.client.http import FIRST_PAUSE_S, LONGEST_PAUSE_S, RETRY_S, pause_after
from voda.domain.errors import StoreUnavailable, VersionConflict, VodaError

T = TypeVar("T")

_CHANGES = 5
"""Attempts to change a resource that others change at the same time."""


async def retry_while_away(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an idempotent request, retried while the server is away."""
    loop = asyncio.get_running_loop()
    gives_up_at, failures = loop.time() + RETRY_S, 0
    while True:
        try:
            return await attempt()
        except (ServerUnreachable, StoreUnavailable) as error:
            failures += 1
            pause_s = delay_s(failures, first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S)
            pause_s = max(pause_s, pause_after(error))
            if loop.time() + pause_s > gives_up_at:
                raise
            if failures == 1:
                note(f"{str(error).removesuffix('; try again')}; trying again for {RETRY_S:g} s")
        await asyncio.sleep(pause_s)


async def for_each(things: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Call `act` on one item after the other, whatever fails; print all failures but the last, which is raised."""
    failure: VodaError | None = None
    for thing in things:
        try:
            await act(thing)
        except VodaError as error:
            if failure is not None:
                note(str(failure))
            failure = error
    if failure is not None:
        raise failure


async def patch_resource(client: Client, path: str, change: Mapping[str, object]) -> tuple[HttpAnswer, HttpAnswer]:
    """Return the resource before and after a JSON merge patch.

    Raises:
        VersionConflict: it changed each time between being read and being written.
    """
    body = msgspec.json.encode(change)

    async def attempt() -> tuple[HttpAnswer, HttpAnswer]:
        before = await client.ask("GET", path)
        headers = {"If-Match": before.etag, "Content-Type": "application/merge-patch+json"}
        return before, await client.ask("PATCH", path, body=body, headers=headers)

    for _ in range(_CHANGES - 1):
        try:
            return await retry_while_away(attempt)
        except VersionConflict:
            continue
    return await retry_while_away(attempt)
