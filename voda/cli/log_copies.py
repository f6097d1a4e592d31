"""The commands of `voda log` that put a log in another place, proven to be the same, or keep it short.

Rule: nothing is forgotten that the service of this version needs to start.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.execution import progress_bar, run_async
from voda.cli.log_files import (
    ARCHIVE,
    LOG,
    ReportOutputOption,
    new_store,
    print_json,
    whole_log,
)
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.log.archive.copy import CopyResult
    from voda.log.archive.retention import ArchiveResult
    from voda.log.store import DurableStore

_PLACE = (
    "Nothing yet, an empty log, or an earlier copy: a folder, an SQLite file (ends in .db), or a postgresql:// or"
    " nats:// URL."
)
_OLDER = (
    "voda: if a service ran on a newer log than this copy: of what happened since, it knows nothing; see"
    " 'After a restore' in docs/backup.md before you start it"
)


@command("copy")
def copy(  # noqa: PLR0913 - a command's options are its parameters
    source: Annotated[str, Argument(metavar="FROM", help=LOG)],
    target: Annotated[str, Argument(metavar="TO", help=_PLACE)],
    to_position: Annotated[
        int | None, Option("--to-position", min=1, metavar="POSITION", help="Leave out what came later.")
    ] = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on with what is appended, until Ctrl-C.")] = False,
    archive: Annotated[Path | None, Option("--archive", help=ARCHIVE)] = None,
    output: ReportOutputOption = "text",
) -> None:
    """Copy a log event by event, byte for byte, each proven; run it again to go on where it ended.

    Others may append to FROM meanwhile; nobody may write to TO. A folder gets what it lacks as segments: packed files
    that are never changed afterwards.

    \b
    Examples:
      voda log copy voda.db /backup/voda
      voda log copy /backup/voda voda.db
      voda log copy voda.db postgresql://voda@db.example/voda
    """
    from voda.log.factory import display_name, sqlite_path

    folder = _folder(target)
    if follow and (folder or to_position is not None):
        raise InvalidInput("--follow is for a copy of all in another store: leave it out, and run the command again")
    copied = run_async(_copy(source, folder or target, archive, until=to_position, follow=follow))
    if output == "json":
        print_json(copied, to=display_name(target))
    else:
        last = f"the last is {copied.position:,}, {copied.hash or 'none'}"
        print(f"{display_name(target)}: {copied.events:,} events copied; {last}")
    if not folder and (path := sqlite_path(source)) and path.is_dir():
        print(_OLDER, file=sys.stderr)


def _folder(target: str) -> Path | None:
    """Return the folder of segments that a target means; None for a store."""
    from voda.log.factory import sqlite_path

    path = sqlite_path(target)
    if path is None or path.is_file() or "://" in target or path.suffix == ".db":
        return None
    return path


async def _copy(
    source: str, target: str | Path, archive: Path | None, *, until: int | None, follow: bool
) -> "CopyResult":
    from voda.log.archive.copy import copy_log, copy_to_folder

    async with whole_log(source, archive, until=until) as store:
        if isinstance(target, Path):
            with progress_bar("copy") as progress:
                return await copy_to_folder(store, target, until=until, progress=progress)
        async with new_store(target) as new:
            with progress_bar("copy") as progress:
                return await copy_log(store, new, until=until, follow=follow, progress=progress)


@command("trim")
def trim(
    log: Annotated[str, Argument(help="The log; it may be in use.")],
    folder: Annotated[Path, Argument(help="Folder of segments, as 'voda log copy' writes them.")],
    keep: Annotated[
        float | None,
        Option("--keep", metavar="SPAN", help="Keep the events of this long: 30d, 12h.", is_span=True, needs_unit=True),
    ] = None,
    before: Annotated[
        int | None, Option("--before", min=1, metavar="POSITION", help="Keep the events from this position on.")
    ] = None,
    output: ReportOutputOption = "text",
) -> None:
    """Move a log's old events to files, from which they are still read; the log itself forgets them.

    Only what lies behind the newest snapshots is moved. The files are read back and compared before anything is
    forgotten; run it again after an interruption.

    Example: voda log trim voda.db /archive/voda --keep 30d
    """
    from voda.log.factory import display_name

    if (keep is None) == (before is None):
        raise InvalidInput("expected --keep SPAN or --before POSITION: how much of the log is to stay")
    retained, wanted = run_async(_trim(log, folder, keep, before))
    name, first = display_name(log), retained.base + 1
    if output == "json":
        print_json(retained, log=name)
        return
    print(f"{name}: {retained.events:,} events archived; it has {first:,} to {retained.position:,}")
    if retained.base < wanted:
        print(f"those up to {wanted:,} can follow once there is a snapshot newer than that of {retained.base:,}")


@command("snapshot")
def snapshot(
    log: Annotated[str, Argument(help="The log; it may be in use.")],
    archive: Annotated[Path | None, Option("--archive", help=ARCHIVE)] = None,
) -> None:
    """Write down what the log has come to, so that the next start reads only what comes after.

    The service does so by itself; it is needed by hand before trimming a log that was never served, and where a new
    version of voda cannot use the snapshots of the old one.

    Example: voda log snapshot voda.db
    """
    from voda.log.factory import display_name

    position = run_async(_snapshot(log, archive))
    print(f"{display_name(log)}: a snapshot of position {position:,} is there")


@asynccontextmanager
async def _existing_store(log: str) -> "AsyncIterator[DurableStore]":
    from voda.log.factory import open_store, sqlite_path

    # Opened for writing it would be made.
    if (path := sqlite_path(log)) is not None and not path.exists():
        raise InvalidInput(f"{log}: there is no such log")
    store = await open_store(log)
    try:
        yield store
    finally:
        await store.close()


async def _trim(log: str, folder: Path, keep_s: float | None, before: int | None) -> "tuple[ArchiveResult, int]":
    """Trim, and return the result and the position up to which it was asked for."""
    from voda.clock import SystemClock
    from voda.log.archive.retention import archive_log, behind_snapshots, older_than
    from voda.projections.jobs.registry import JobRegistry
    from voda.projections.live import Live

    async with _existing_store(log) as store:
        if before is not None:
            wanted = min(before - 1, await store.position())
        else:
            assert keep_s is not None, "one of both is given"
            wanted = await older_than(store, SystemClock().now() - keep_s)
        needed = {Live.FORMAT: Live().load, JobRegistry.FORMAT: JobRegistry().load}
        until = min(wanted, await behind_snapshots(store, needed))
        with progress_bar("trim") as progress:
            return await archive_log(store, folder, until=until, progress=progress), wanted


async def _snapshot(log: str, folder: Path | None) -> int:
    from voda import config
    from voda.controller.follower import catch_up
    from voda.controller.snapshots import take_snapshots
    from voda.log.archive.archive_backed_store import ArchiveBackedStore
    from voda.projections.jobs.registry import JobRegistry
    from voda.projections.live import Live

    async with _existing_store(log) as opened:
        store = ArchiveBackedStore(opened, folder or config.archive())
        end = await store.position()
        for projection in (Live(), JobRegistry()):
            # From the first event on: the present snapshots may be wrong.
            await catch_up(store, [projection], after=0, until=end)
            await take_snapshots(store, [projection], end)
        return end
