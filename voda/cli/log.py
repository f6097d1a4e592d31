"""`voda log`: carries a log out and in, proves that it is whole, and prepares a database for one."""

import enum
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from voda.cli._awaited import awaited
from voda.cli._progress import bar
from voda.domain.errors import InvalidInput, LogDamaged, StoreNotWritable, VodaError

if TYPE_CHECKING:
    from voda.events.verify import Verdict

_HELP = "Export, import, verify and migrate event logs."
_LOG = "An SQLite file, an exported .jsonl file, or postgresql://user@host/database."
_DAMAGED = 2

app = typer.Typer(name="log", help=_HELP, no_args_is_help=True)


class Output(enum.StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


def register(parent: typer.Typer) -> None:
    """Add `voda log` to the command line."""
    parent.add_typer(app)


@app.command("export")
def export_command(
    log: Annotated[str, typer.Argument(help=_LOG)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new file; by default standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a log as lines of JSON, every event byte for byte.

    Example: voda log export voda.db -o voda.jsonl
    """
    if output and output.exists():
        _refuse_to_replace(output, log, force)
    with _exported_file(output) as file:
        events = awaited(_export(log, file))
    print(f"{events:,} events exported to {output or 'standard output'}", file=sys.stderr)


@app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(help="What 'voda log export' wrote.")],
    log: Annotated[str, typer.Argument(help="A path where nothing is yet, or an empty log.")],
) -> None:
    """Make a log from an export: all of it, or nothing.

    Example: voda log import voda.jsonl copy.db
    """
    from voda.events.opening import shown

    try:
        opened = file.open("rb")
    except FileNotFoundError:
        raise InvalidInput(f"{file}: there is no such file") from None
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    with opened:
        events = awaited(_import(opened, log))
    print(f"{events:,} events imported into {shown(log)}", file=sys.stderr)


@app.command("verify")
def verify_command(
    log: Annotated[str, typer.Argument(help=_LOG)],
    output: Annotated[Output, typer.Option("--output", "-o", help="For people or for programs.")] = Output.TEXT,
) -> None:
    """Prove that every event is what was written, and that none is missing; exit with 2 where it is not so.

    Example: voda log verify voda.db
    """
    from voda.events.opening import shown

    verdict, log = awaited(_verify(log)), shown(log)
    if output is Output.JSON:
        import msgspec

        print(msgspec.json.encode({"log": log, "is_intact": verdict.is_intact, **verdict._asdict()}).decode())
    elif verdict.is_intact:
        print(
            f"{log}: {verdict.events:,} events in {verdict.streams:,} streams and {verdict.snapshots:,} snapshots"
            " are what was written"
        )
    else:
        where = "" if log in verdict.problem else f"{log}: "
        print(f"voda: {where}{verdict.problem}", file=sys.stderr)
    if not verdict.is_intact:
        raise typer.Exit(_DAMAGED)


@app.command("migrate")
def migrate_command(
    log: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="postgresql://user@host/database, or an SQLite file; by default what VODA_LOG names."
        ),
    ] = "",
) -> None:
    """Bring a database to the tables of this version; make them where there are none (PostgreSQL).

    SQLite logs are migrated by themselves when they are opened for writing.

    Example: voda log migrate postgresql://voda@db.example/voda
    """
    from voda import config
    from voda.events.opening import shown

    # A password in a variable is not seen by everybody who may list processes.
    if not (log := log or config.log()):
        raise InvalidInput("no log is named: give its URL, or set VODA_LOG")
    awaited(_migrate(log))
    print(f"{shown(log)} is ready for this version", file=sys.stderr)


async def _export(log: str, file: BinaryIO) -> int:
    from voda.events.opening import open_log
    from voda.events.transfer import export_log

    store = await open_log(log)
    try:
        with bar("export") as progress:
            return await export_log(store, file, progress=progress)
    finally:
        await store.close()


async def _import(file: BinaryIO, log: str) -> int:
    from voda.events.opening import open_store, sqlite_path
    from voda.events.transfer import import_log

    path = sqlite_path(log)
    is_new = path is not None and not path.exists()
    store = await open_store(log)
    try:
        with bar("import") as progress:
            events = await import_log(file, store, progress=progress)
    except BaseException:
        # Somebody else may have begun to write to it, now that it is there.
        is_empty = await store.position() == 0
        await store.close()
        if path and is_new and is_empty:
            path.unlink()
        raise
    await store.close()
    return events


async def _verify(log: str) -> "Verdict":
    from voda.events.opening import open_log, sqlite_path
    from voda.events.transfer import is_export, verify_export
    from voda.events.verify import Verdict, verify_log

    path = sqlite_path(log)
    if path and is_export(path):
        with path.open("rb") as file, bar("verify") as progress:
            return verify_export(file, progress=progress)
    try:
        store = await open_log(log)
    except LogDamaged as error:
        return Verdict(max((error.position or 1) - 1, 0), 0, 0, error.position, str(error))
    try:
        with bar("verify") as progress:
            return await verify_log(store, progress=progress)
    finally:
        await store.close()


async def _migrate(log: str) -> None:
    from voda.events.opening import open_store, sqlite_path
    from voda.events.sql.postgres import PostgresDatabase

    path = sqlite_path(log)
    if path is None:
        await PostgresDatabase.migrate(log)
    elif not path.exists():
        raise InvalidInput(f"{path}: there is no such log; a new one is made by whatever writes to it first")
    else:
        await (await open_store(path)).close()


def _refuse_to_replace(output: Path, log: str, force: bool) -> None:
    from voda.events.opening import sqlite_path

    if not force:
        raise InvalidInput(f"{output} is there already: choose another file, or replace it with --force")
    if not output.is_file():
        raise InvalidInput(
            f"{output} is no regular file: choose another, or leave --output out to write to the terminal"
        )
    path = sqlite_path(log)
    if path and path.exists() and output.samefile(path):
        raise InvalidInput(f"{output} is the log itself, which its export must not replace: choose another file")


@contextmanager
def _exported_file(output: Path | None) -> Iterator[BinaryIO]:
    """Open the file under another name, and give it its own only when it is complete."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = output.with_name(f"{output.name}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(output)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreNotWritable(f"{output} cannot be written: {error.strerror}") from error
    except (VodaError, KeyboardInterrupt):
        part.unlink(missing_ok=True)
        raise
