"""Whether the Python that a job was submitted with is one that the job's user may execute.

Rule: a process that has that user's rights alone looks, for a bounded time: what it tells, the user could see, and a
path that hangs holds up nobody.
"""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any, Final

from voda.accounts import Account
from voda.domain.errors import InvalidField
from voda.domain.job import JobSpec
from voda.manifests.parse import ParsedManifest
from voda.programs.program_manifest import INTERPRETER, interpreter_of

_LIMIT_S: Final = 2.0
_FIELD: Final = f"metadata.annotations[{INTERPRETER}]"


async def refuse_unusable(parsed: ParsedManifest, account_of: Callable[[JobSpec], Awaitable[Account | None]]) -> None:
    """Raise InvalidField where a job's user may not execute the Python that its manifest says it runs with.

    `account_of` finds the account that a job runs with, None = that of the user who runs voda.
    """
    if not (path := interpreter_of(parsed.raw)):
        return
    if not path.startswith("/") or "\0" in path:
        raise InvalidField(_FIELD, f"{_FIELD}: expected the absolute path of a Python, got {path[:80]!r}")
    account = await account_of(parsed.spec)
    if not await asyncio.to_thread(_may_execute, path, account):
        user = "the user who runs this voda" if account is None else account.name
        raise InvalidField(
            _FIELD,
            f"it would run with {path[:200]}, which {user}, as whom it runs, may not execute: add --env PATH=... with a"
            f" Python of {user}'s, or name that Python by its whole path (voda submit -- /path/to/bin/python ...)",
        )


def _may_execute(path: str, account: Account | None) -> bool:
    """Return whether a file may be executed, as a user; True where that is not known in time."""
    user: dict[str, Any] = {}
    if account is not None:
        user = {"user": account.uid, "group": account.gid, "extra_groups": account.groups}
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'test -f "$1" && test -x "$1"', "voda", path],
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **user,
    )
    try:
        return process.wait(_LIMIT_S) == 0
    except subprocess.TimeoutExpired:
        # Not waited for: one that hangs in the kernel ends when it can.
        process.kill()
        return True
