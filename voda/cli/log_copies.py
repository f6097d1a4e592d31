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
    WHOLE_LOG,
    ReportOutput,
    ReportOutputOption,
    exported_file,
    new_store,
    print_json,
    refuse_to_replace,
    whole_log,
)
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.log.archive.copy import CopyResult
    from voda.log.archive.retention import ArchiveResult
    from voda.log.store import DurableStore

_PLACE = "An SQLite file, or a postgresql:// or nats:// URL: nothing yet, or empty."
_FILES = (".jsonl", ".jsonl.gz")
_OLDER = (
    "voda: if a service ran on a newer log than this copy: of what happened since, it knows nothing; see"
    " 'After a restore' in docs/backup.md before you start it"
)


@command("copy")
def copy(
    source: Annotated[str, Argument(metavar="FROM", help=WHOLE_LOG)],
    target: Annotated[str, Argument(metavar="TO", help="A log to make, or one that was copied before.")],
    follow: Annotated[bool, Option("--follow", "-f", help="Go on with what is appended, until Ctrl-C.")] = False,
    archive: Annotated[Path | None, Option("--archive", help=ARCHIVE)] = None,
    output: ReportOutputOption = "text",
) -> None:
    """Copy a log to another store, event by event, byte for byte; run it again to go on after an interruption.

    Others may append to FROM meanwhile; nobody may write to TO.

    Example: voda log copy voda.db postgresql://voda@db.example/voda
    """
    from voda.log.factory import display_name

    _print_result(run_async(_copy(source, target, follow, archive)), display_name(target), "copied", output)


@command("backup")
def backup(  # noqa: PLR0913 - a command's options are its parameters
    log: Annotated[str, Argument(help=WHOLE_LOG)],
    target: Annotated[Path, Argument(help="A folder, which is brought up to date; or a new .jsonl[.gz] file.")],
    to_position: Annotated[
        int | None,
        Option("--to-position", min=1, metavar="POSITION", help="Of a folder: save a damaged log up to here."),
    ] = None,
    archive: Annotated[Path | None, Option("--archive", help=ARCHIVE)] = None,
    force: Annotated[bool, Option("--force", help="Replace the file if it is there.")] = False,
    output: ReportOutputOption = "text",
) -> None:
    """Back up a log, which may be in use: its events up to now, each proven.

    A folder gets what it lacks only, as segments that are never changed afterwards.

    Example: voda log backup voda.db /backup/voda
    """
    if not (is_file := target.name.endswith(_FILES)) and target.suffix in (".json", ".gz", ".zst", ".zip", ".db"):
        raise InvalidInput(f"{target}: expected a folder, or a file that ends in .jsonl or .jsonl.gz")
    if is_file and target.exists():
        refuse_to_replace(target, log, force)
    if is_file and to_position is not None:
        raise InvalidInput(f"{target}: --to-position is for folders; a file holds all of the log")
    work = export(log, target, archive, "backup") if is_file else _back_up(log, target, archive, to_position)
    _print_result(run_async(work), str(target), "backed up", output)


@command("restore")
def restore(
    source: Annotated[Path, Argument(metavar="BACKUP", help="A folder or file that 'voda log backup' wrote.")],
    log: Annotated[str, Argument(help=_PLACE)],
    to_position: Annotated[
        int | None, Option("--to-position", min=1, metavar="POSITION", help="Leave out what came later.")
    ] = None,
    output: ReportOutputOption = "text",
) -> None:
    """Make a log from a backup: all of it, proven, or nothing.

    Example: voda log restore /backup/voda voda.db
    """
    from voda.log.factory import display_name

    if not source.exists():
        raise InvalidInput(f"{source}: there is no such backup")
    restored = run_async(restore_segments(source, log, to_position, "restore"))
    _print_result(restored, display_name(log), "restored", output)
    print(_OLDER, file=sys.stderr)


def _print_result(copied: "CopyResult", where: str, done: str, output: ReportOutput) -> None:
    if output == "json":
        print_json(copied, to=where)
        return
    print(f"{where}: {copied.events:,} events {done}; the last is {copied.position:,}, {copied.hash or 'none'}")


async def _copy(source: str, target: str, follow: bool, archive: Path | None) -> "CopyResult":
    from voda.log.archive.copy import copy_log

    async with whole_log(source, archive) as store, new_store(target) as new:
        with progress_bar("copy") as progress:
            return await copy_log(store, new, follow=follow, progress=progress)


async def _back_up(log: str, folder: Path, archive: Path | None, until: int | None) -> "CopyResult":
    from voda.log.archive.copy import back_up

    async with whole_log(log, archive, until=until) as store:
        with progress_bar("backup") as progress:
            return await back_up(store, folder, until=until, progress=progress)


async def export(log: str, file: Path | None, archive: Path | None, what: str) -> "CopyResult":
    """Write a log to one file; None = standard output. `what` is the title of the progress bar."""
    from voda.log.archive.copy import export_log

    async with whole_log(log, archive) as store:
        with exported_file(file) as opened, progress_bar(what) as progress:
            return await export_log(store, opened, progress=progress)


async def restore_segments(source: Path, log: str, until: int | None, what: str) -> "CopyResult":
    """Make a log, or fill an empty one, from a folder of segments or an exported file, up to the position `until`.

    `what` is the title of the progress bar.
    """
    from voda.log.archive.copy import restore_archive
    from voda.log.factory import open_archive

    archive = open_archive(source)
    async with new_store(log) as store:
        with progress_bar(what) as progress:
            return await restore_archive(archive, store, until=until, progress=progress)


@command("archive")
def archive(
    log: Annotated[str, Argument(help="The log; it may be in use.")],
    folder: Annotated[Path, Argument(help="Folder of segments, as 'voda log backup' writes them.")],
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

    Example: voda log archive voda.db /archive/voda --keep 30d
    """
    from voda.log.factory import display_name

    if (keep is None) == (before is None):
        raise InvalidInput("expected --keep SPAN or --before POSITION: how much of the log is to stay")
    retained, wanted = run_async(_archive(log, folder, keep, before))
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

    The service does so by itself; it is needed by hand before archiving a log that was never served, and where a new
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


async def _archive(log: str, folder: Path, keep_s: float | None, before: int | None) -> "tuple[ArchiveResult, int]":
    """Archive, and return the result and the position up to which it was asked for."""
    from voda.clock import SystemClock
    from voda.log.archive.retention import archive_log, behind_snapshots, older_than
    from voda.projections.job_registry import JobRegistry
    from voda.projections.live import Live

    async with _existing_store(log) as store:
        if before is not None:
            wanted = min(before - 1, await store.position())
        else:
            assert keep_s is not None, "one of both is given"
            wanted = await older_than(store, SystemClock().now() - keep_s)
        needed = {Live.FORMAT: Live().load, JobRegistry.FORMAT: JobRegistry().load}
        until = min(wanted, await behind_snapshots(store, needed))
        with progress_bar("archive") as progress:
            return await archive_log(store, folder, until=until, progress=progress), wanted


async def _snapshot(log: str, folder: Path | None) -> int:
    from voda import config
    from voda.controller.follower import catch_up, take_snapshots
    from voda.log.archive.archive_backed_store import ArchiveBackedStore
    from voda.projections.job_registry import JobRegistry
    from voda.projections.live import Live

    async with _existing_store(log) as opened:
        store = ArchiveBackedStore(opened, folder or config.archive())
        end = await store.position()
        for projection in (Live(), JobRegistry()):
            # From the first event on: the present snapshots may be wrong.
            await catch_up(store, [projection], after=0, until=end)
            await take_snapshots(store, [projection], end)
        return end
