"""Changes a resource that others may change too: reads it, and sends the change for what was read.

Rule: a change is made to what the user was shown; when somebody else was faster, it is read again.
"""

from collections.abc import Mapping

import msgspec

from voda.cli._client import Answer, Client
from voda.cli._print import say
from voda.cli._retry import persistently
from voda.domain.errors import VersionConflict

_ATTEMPTS = 5


async def patched(client: Client, path: str, change: Mapping[str, object]) -> tuple[Answer, Answer]:
    """Return the resource before and after the change, a JSON merge patch.

    Raises:
        VersionConflict: it changed each time between being read and being written.
    """
    body = msgspec.json.encode(change)

    async def attempt() -> tuple[Answer, Answer]:
        before = await client.ask("GET", path)
        headers = {"If-Match": before.etag, "Content-Type": "application/merge-patch+json"}
        return before, await client.ask("PATCH", path, body=body, headers=headers)

    for _ in range(_ATTEMPTS - 1):
        try:
            return await persistently(attempt, told=say)
        except VersionConflict:
            continue
    return await persistently(attempt, told=say)
