"""`voda log copy`, `backup` and `restore`: a log in another place, proven to be the same."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.execution import progress_bar, run_async
from voda.cli.log.files import (
    ARCHIVE,
    LOG,
    ReportOutput,
    ReportOutputOption,
    exported_file,
    new_store,
    refuse_to_replace,
    whole_log,
)
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.log.archive.copy import CopyResult

_PLACE = "An SQLite file, or a postgresql:// or nats:// URL: nothing yet, or empty."
_FILES = (".jsonl", ".jsonl.gz")
_OLDER = (
    "voda: if a service ran on a newer log than this copy: of what happened since, it knows nothing; see"
    " 'After a restore' in docs/backup.md before you start it"
)


def register(app: typer.Typer) -> None:
    """Add the commands to `voda log`."""
    app.command("copy")(copy)
    app.command("backup")(backup)
    app.command("restore")(restore)


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=LOG)],
    target: Annotated[str, typer.Argument(metavar="TO", help="A log to make, or one that was copied before.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is appended, until Ctrl-C.")] = False,
    archive: Annotated[Path | None, typer.Option("--archive", help=ARCHIVE)] = None,
    output: ReportOutputOption = ReportOutput.TEXT,
) -> None:
    """Copy a log to another store, event by event, byte for byte; run it again to go on after an interruption.

    Others may append to FROM meanwhile; nobody may write to TO.

    Example: voda log copy voda.db postgresql://voda@db.example/voda
    """
    from voda.log.factory import display_name

    _tell(run_async(_copy(source, target, follow, archive)), display_name(target), "copied", output)


def backup(  # noqa: PLR0913 - a command's options are its parameters
    log: Annotated[str, typer.Argument(help=LOG)],
    target: Annotated[Path, typer.Argument(help="A folder, which is brought up to date; or a new .jsonl[.gz] file.")],
    to_position: Annotated[
        int | None,
        typer.Option("--to-position", min=1, metavar="POSITION", help="Of a folder: save a damaged log up to here."),
    ] = None,
    archive: Annotated[Path | None, typer.Option("--archive", help=ARCHIVE)] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    output: ReportOutputOption = ReportOutput.TEXT,
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
    work = _export(log, target, archive) if is_file else _back_up(log, target, archive, to_position)
    _tell(run_async(work), str(target), "backed up", output)


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A folder or file that 'voda log backup' wrote.")],
    log: Annotated[str, typer.Argument(help=_PLACE)],
    to_position: Annotated[
        int | None, typer.Option("--to-position", min=1, metavar="POSITION", help="Leave out what came later.")
    ] = None,
    output: ReportOutputOption = ReportOutput.TEXT,
) -> None:
    """Make a log from a backup: all of it, proven, or nothing.

    Example: voda log restore /backup/voda voda.db
    """
    from voda.log.factory import display_name

    if not source.exists():
        raise InvalidInput(f"{source}: there is no such backup")
    restored = run_async(restore_segments(source, log, to_position, "restore"))
    _tell(restored, display_name(log), "restored", output)
    print(_OLDER, file=sys.stderr)


def _tell(copied: "CopyResult", where: str, done: str, output: ReportOutput) -> None:
    if output is ReportOutput.JSON:
        import msgspec

        print(msgspec.json.encode({"to": where, **msgspec.structs.asdict(copied)}).decode())
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


async def _export(log: str, file: Path, archive: Path | None) -> "CopyResult":
    from voda.log.archive.copy import export_log

    async with whole_log(log, archive) as store:
        with exported_file(file) as opened, progress_bar("backup") as progress:
            return await export_log(store, opened, progress=progress)


async def restore_segments(source: Path, log: str, until: int | None, what: str) -> "CopyResult":
    """Make a log from a folder of segments or an exported file.

    Args:
        source: the folder or file.
        log: path or URL of an empty log, or of one to make.
        until: last position to take; None = all.
        what: title of the progress bar.
    """
    from voda.log.archive.copy import restore_archive
    from voda.log.factory import open_archive

    archive = open_archive(source)
    async with new_store(log) as store:
        with progress_bar(what) as progress:
            return await restore_archive(archive, store, until=until, progress=progress)
