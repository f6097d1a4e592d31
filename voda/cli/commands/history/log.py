"""`voda log`: proves that a log is whole, and prepares a database for one; the rest is in `log_copies`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from voda.cli import log_copies
from voda.cli.command_group import CommandGroup, add_commands, command
from voda.cli.execution import progress_bar, run_async
from voda.cli.log_files import LOG, ReportOutputOption, print_json
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput, LogDamaged

if TYPE_CHECKING:
    from voda.log.archive.verify import Progress, VerifyReport

_HELP = "Copy, verify, trim and migrate event logs."
_DAMAGED = 2

app = CommandGroup("log", help=_HELP)
add_commands(app, log_copies)


@command("verify")
def verify_command(
    log: Annotated[str, Argument(help=LOG)],
    archive: Annotated[
        Path | None, Option("--archive", help="Prove the log's archive too, and that the log follows it.")
    ] = None,
    output: ReportOutputOption = "text",
) -> None:
    """Prove that every event is what was written, and that none is missing; exit with 2 where it is not so.

    Example: voda log verify voda.db
    """
    from voda.log.factory import display_name

    verdict, log = run_async(_verify(log, archive)), display_name(log)
    if output == "json":
        print_json(verdict._asdict(), log=log, is_intact=verdict.is_intact)
    elif verdict.is_intact:
        print(f"{log}: {_proven_events(verdict)} and {verdict.snapshots:,} snapshots are what was written")
    else:
        where = "" if log in verdict.problem else f"{log}: "
        print(f"voda: {where}{verdict.problem}", file=sys.stderr)
    if not verdict.is_intact:
        raise click.exceptions.Exit(_DAMAGED)


@command("migrate")
def migrate_command(
    log: Annotated[
        str,
        Argument(
            metavar="URL", help="A postgresql:// or nats:// URL, or an SQLite file; by default what VODA_LOG names."
        ),
    ] = "",
) -> None:
    """Bring a database to the tables of this version; make them where there are none (PostgreSQL, NATS).

    SQLite logs are migrated by themselves when they are opened for writing.

    Example: voda log migrate postgresql://voda@db.example/voda
    """
    from voda import config
    from voda.log.factory import display_name, migrate_log

    # A password in a variable is not seen by everybody who may list processes.
    if not (log := log or config.log()):
        raise InvalidInput("no log is named: give its URL, or set VODA_LOG")
    run_async(migrate_log(log))
    print(f"{display_name(log)} is ready for this version", file=sys.stderr)


def _proven_events(verdict: "VerifyReport") -> str:
    if verdict.archived:
        # Who reads only this must not take it for the whole log.
        return f"the events from {verdict.archived + 1:,} to {verdict.events:,} (those before are archived: --archive)"
    return f"{verdict.events:,} events in {verdict.streams:,} streams"


async def _verify(log: str, archive: Path | None) -> "VerifyReport":
    from voda.log.archive.archive import verify_archive
    from voda.log.archive.verify import HashChain, VerifyReport
    from voda.log.factory import open_archive, sqlite_path

    path = sqlite_path(log)
    with progress_bar("verify") as progress:
        try:
            if path and path.is_dir():
                return verify_archive(open_archive(path), HashChain(), progress=progress)
            return await _verify_store(log, archive, progress)
        except LogDamaged as error:
            return VerifyReport.of_unreadable(error)


async def _verify_store(log: str, folder: Path | None, progress: "Progress") -> "VerifyReport":
    """Prove a log; and its archive before it, where that is named."""
    from voda.log.archive.archive import verify_archive
    from voda.log.archive.verify import HashChain, verify_log
    from voda.log.factory import open_archive, open_store

    store = await open_store(log, read_only=True)
    try:
        if folder is None:
            return await verify_log(store, progress=progress)
        archive, base = open_archive(folder), await store.base()
        report = verify_archive(archive, HashChain(), progress=progress)
        if not report.is_intact:
            return report
        report = await verify_log(store, archive=archive.chain(base.position).heads, progress=progress)
        return report._replace(archived=0)
    finally:
        await store.close()
