"""`voda log archive` and `snapshot`: a log that stays short, and starts quickly.

Rule: nothing is forgotten that the service of this version needs to start.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.execution import progress_bar, run_async
from voda.cli.log.files import ARCHIVE, ReportOutput, ReportOutputOption
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.log.archive.retention import ArchiveResult
    from voda.log.store import DurableStore


def register(app: typer.Typer) -> None:
    """Add the commands to `voda log`."""
    app.command("archive")(archive)
    app.command("snapshot")(snapshot)


def archive(
    log: Annotated[str, typer.Argument(help="The log; it may be in use.")],
    folder: Annotated[Path, typer.Argument(help="Folder of segments, as 'voda log backup' writes them.")],
    keep: Annotated[str, typer.Option("--keep", metavar="SPAN", help="Keep the events of this long: 30d, 12h.")] = "",
    before: Annotated[
        int | None, typer.Option("--before", min=1, metavar="POSITION", help="Keep the events from this position on.")
    ] = None,
    output: ReportOutputOption = ReportOutput.TEXT,
) -> None:
    """Move a log's old events to files, from which they are still read; the log itself forgets them.

    Only what lies behind the newest snapshots is moved. The files are read back and compared before anything is
    forgotten; run it again after an interruption.

    Example: voda log archive voda.db /archive/voda --keep 30d
    """
    from voda.log.factory import display_name

    if bool(keep) == (before is not None):
        raise InvalidInput("expected --keep SPAN or --before POSITION: how much of the log is to stay")
    retained, wanted = run_async(_archive(log, folder, _span_s(keep) if keep else None, before))
    if output is ReportOutput.JSON:
        import msgspec

        print(msgspec.json.encode({"log": display_name(log), **msgspec.structs.asdict(retained)}).decode())
        return
    name, first = display_name(log), retained.base + 1
    print(f"{name}: {retained.events:,} events archived; it has {first:,} to {retained.position:,}")
    if retained.base < wanted:
        print(f"those up to {wanted:,} can follow once there is a snapshot newer than that of {retained.base:,}")


def snapshot(
    log: Annotated[str, typer.Argument(help="The log; it may be in use.")],
    archive: Annotated[Path | None, typer.Option("--archive", help=ARCHIVE)] = None,
) -> None:
    """Write down what the log has come to, so that the next start reads only what comes after.

    The service does so by itself; it is needed by hand before archiving a log that was never served, and where a new
    version of voda cannot use the snapshots of the old one.

    Example: voda log snapshot voda.db
    """
    from voda.log.factory import display_name

    position = run_async(_snapshot(log, archive))
    print(f"{display_name(log)}: a snapshot of position {position:,} is there")


def _refuse_missing(log: str) -> None:
    from voda.log.factory import sqlite_path

    # Opened for writing it would be made.
    if (path := sqlite_path(log)) is not None and not path.exists():
        raise InvalidInput(f"{log}: there is no such log")


def _span_s(text: str) -> float:
    from voda.timetravel.moment import BeforeLast, parse_moment

    try:
        moment = parse_moment(f"-{text}")
    except InvalidInput:
        moment = None
    if not isinstance(moment, BeforeLast):
        raise InvalidInput(f"--keep {text[:80]!r} is no span: expected 30d, 12h or 1d12h")
    return moment.span_s


async def _archive(log: str, folder: Path, keep_s: float | None, before: int | None) -> "tuple[ArchiveResult, int]":
    """Archive, and return what it came to and the position up to which it was asked for."""
    from voda.clock import SystemClock
    from voda.log.archive.retention import archive_log, behind_snapshots, older_than
    from voda.log.factory import open_store
    from voda.projections.job_registry import JobRegistry
    from voda.projections.live import Live

    _refuse_missing(log)
    store: DurableStore = await open_store(log)
    try:
        if before is not None:
            wanted = min(before - 1, await store.position())
        else:
            assert keep_s is not None, "one of both is given"
            wanted = await older_than(store, SystemClock().now() - keep_s)
        needed = {Live.FORMAT: Live().load, JobRegistry.FORMAT: JobRegistry().load}
        until = min(wanted, await behind_snapshots(store, needed))
        with progress_bar("archive") as progress:
            return await archive_log(store, folder, until=until, progress=progress), wanted
    finally:
        await store.close()


async def _snapshot(log: str, folder: Path | None) -> int:
    from voda import config
    from voda.controller.follower import catch_up, take_snapshots
    from voda.log.archive.archive_backed_store import ArchiveBackedStore
    from voda.log.factory import open_store
    from voda.projections.job_registry import JobRegistry
    from voda.projections.live import Live

    _refuse_missing(log)
    opened = await open_store(log)
    try:
        store = ArchiveBackedStore(opened, folder or config.archive())
        end = await store.position()
        for projection in (Live(), JobRegistry()):
            # From the first event on: the present snapshots may be wrong.
            await catch_up(store, [projection], after=0, until=end)
            await take_snapshots(store, [projection], end)
        return end
    finally:
        await opened.close()
