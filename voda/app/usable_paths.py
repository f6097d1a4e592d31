"""Whether the Python, the working folder and the kept script of a job are such as the job's user may use.

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
from voda.manifests.programs import working_dir_annotation
from voda.programs.program_manifest import INTERPRETER, KEPT_SCRIPT, WORKING_DIR, interpreter_of, kept_script_of

_LIMIT_S: Final = 2.0
_IS_PYTHON: Final = 'test -f "$1" && test -x "$1"'
_IS_FOLDER: Final = 'cd -- "$1"'
_PYTHON_FIELD: Final = f"metadata.annotations[{INTERPRETER}]"
_IS_SCRIPT: Final = 'test -f "$1" && test -r "$1"'
_KEPT_FIELD: Final = f"metadata.annotations[{KEPT_SCRIPT}]"
_FOLDER_FIELD: Final = f"metadata.annotations[{WORKING_DIR}]"


async def refuse_unusable(parsed: ParsedManifest, account_of: Callable[[JobSpec], Awaitable[Account | None]]) -> None:
    """Raise InvalidField where a job's user may not execute the Python that its manifest says it runs with, enter the
    folder in which it would begin, or read the script that was kept of it.

    `account_of` finds the account that a job runs with, None = that of the user who runs voda.
    """
    python, folder, kept = interpreter_of(parsed.raw), working_dir_annotation(parsed.job), kept_script_of(parsed.raw)
    if not python and not folder and not kept:
        return
    _refuse_relative(_PYTHON_FIELD, python, "a Python")
    _refuse_relative(_FOLDER_FIELD, folder, "a folder")
    _refuse_relative(_KEPT_FIELD, kept, "a file")
    account = await account_of(parsed.spec)
    user = "the user who runs this voda" if account is None else account.name
    if python and not await asyncio.to_thread(_holds, _IS_PYTHON, python, account):
        raise InvalidField(
            _PYTHON_FIELD,
            f"it would run with {python[:200]}, which {user}, as whom it runs, may not execute: add --env PATH=... with"
            f" a Python of {user}'s, or name that Python by its whole path (voda submit -- /path/to/bin/python ...)",
        )
    if folder and not await asyncio.to_thread(_holds, _IS_FOLDER, folder, account):
        raise InvalidField(
            _FOLDER_FIELD,
            f"it would begin in {folder[:200]}, which is no folder that {user}, as whom it runs, may enter: name"
            " another one with --workdir",
        )
    if kept and not await asyncio.to_thread(_holds, _IS_SCRIPT, kept, account):
        raise InvalidField(
            _KEPT_FIELD,
            f"its code, kept at {kept[:200]}, is gone, or not for {user} to read, as whom it runs: submit the program"
            " again, with --live to run it as it is at each start; or of an ended job, voda rerun --continue",
        )


def _refuse_relative(field: str, path: str, what: str) -> None:
    if path and (not path.startswith("/") or "\0" in path):
        raise InvalidField(field, f"{field}: expected the absolute path of {what}, got {path[:80]!r}")


def _holds(test: str, path: str, account: Account | None) -> bool:
    """Return whether a test of the shell holds of a path, for a user; True where that is not known in time."""
    user: dict[str, Any] = {}
    if account is not None:
        user = {"user": account.uid, "group": account.gid, "extra_groups": account.groups}
    process = subprocess.Popen(
        ["/bin/sh", "-c", test, "voda", path],
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
