"""What the commands that read or carry a log share: the words of their arguments, and opening a log."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from voda.cli.parameters import Option
from voda.domain.errors import InvalidInput, LogDamaged, VodaError

if TYPE_CHECKING:
    from voda.log.store import DurableStore, EventStore
    from voda.timetravel.moment import LogPlace

LOG = "An SQLite file, a folder that 'voda log copy' wrote, or a postgresql:// or nats:// URL."
OWN_LOG = f"{LOG} By default that of this machine's voda up."
ARCHIVE = "Folder of the log's archive; by default VODA_ARCHIVE, else where the log was archived to."
MOMENT = (
    "a position (42), a time (2026-01-31T12:00:00Z), or a span after the first or before the last event (+1h, -10m)"
)
EMPTY = "The log is empty: nothing has happened yet."


LogOutput = Literal["table", "json"]
ReportOutput = Literal["text", "json"]
"""Of an operation on a log."""
LogOutputOption = Annotated[LogOutput, Option("--output", "-o", help="For people or for programs.")]
ReportOutputOption = Annotated[ReportOutput, Option("--output", "-o", help="For people or for programs.")]


def print_json(result: object, **context: object) -> None:
    """Print a result as a line of JSON; its fields follow those of the context."""
    import msgspec

    text = msgspec.json.encode({**context, **msgspec.to_builtins(result)} if context else result)
    print(text.decode(), flush=True)


_ASK = (
    "ask the server, with voda events, voda explain JOB or voda usage, run this command as root (sudo),"
    " or name a log of your own"
)


def _refuse_unreadable(log: str) -> None:
    """Raise InvalidInput where a log is a file that this user may not read."""
    try:
        is_denied = "://" not in log and bool(os.stat(log)) and not os.access(log, os.R_OK)
    except PermissionError:
        is_denied = True
    except OSError:
        is_denied = False
    if is_denied:
        raise InvalidInput(f"you may not read {log}: {_ASK}")


def is_log(text: str) -> bool:
    """Return whether the user means a log, and no job, by this."""
    # A job may be called like a folder that is here.
    return "://" in text or text.endswith(".db") or os.path.isfile(text) or any(Path(text).glob("voda-*.jsonl.gz"))


def _warn(error: LogDamaged) -> None:
    # What is left may be just what somebody is looking for.
    print(f"voda: warning: {error}", file=sys.stderr)


def default_log() -> str:
    """Return the log of the voda that runs, or ran, on this machine's data folder.

    Raises:
        InvalidInput: there is none, or it is another user's.
    """
    from voda import config
    from voda.client.target import is_roots

    folder = config.home_folder()
    try:
        place = (folder / "log.place").read_text(encoding="utf-8").partition("\n")[0]
    except FileNotFoundError:
        place = "voda.db"
    except OSError as error:
        raise InvalidInput(f"the log in {folder} cannot be read ({error.strerror}): name another log") from error
    log = place if "://" in place else str(folder / place)
    if "://" not in place and not Path(log).exists():
        if is_roots(folder):
            raise InvalidInput(f"the voda that runs here is root's, and its log is for root to read: {_ASK}")
        raise InvalidInput(f"no log is named, and there is none at {log}: name one, or set VODA_HOME")
    return log


@asynccontextmanager
async def open_log(
    log: str, archive: Path | None = None, *, on_loss: Callable[[LogDamaged], None] = _warn
) -> "AsyncIterator[EventStore]":
    """Open a log for reading; `on_loss` is called where its end was lost."""
    from voda.log.factory import open_log, refuse_cut

    _refuse_unreadable(log)
    store = await open_log(log, archive=archive)
    try:
        try:
            await refuse_cut(store)
        except LogDamaged as error:
            on_loss(error)
        yield store
    finally:
        await store.close()


def whole_log(log: str, archive: Path | None, *, until: int | None = None) -> "AbstractAsyncContextManager[EventStore]":
    """Open a log to be carried elsewhere, up to the position `until`; None = the end.

    Raises:
        LogDamaged: its end was lost; with `until`, only where that is lost too.
    """
    from voda.log.factory import display_name

    def refuse(error: LogDamaged) -> None:
        lost = error.position
        if until is None or (lost is not None and until >= lost):
            raise LogDamaged(f"{error}{_rescue(display_name(log), lost)}", lost) from error

    return open_log(log, archive, on_loss=refuse)


def _rescue(log: str, lost: int | None) -> str:
    if lost is None or lost <= 1:
        return ""
    return f"; to save what is left: voda log copy {log} FOLDER --to-position {lost - 1} (docs/backup.md)"


async def place_of(store: "EventStore", moment: str) -> "LogPlace":
    """Return the place of a moment as the user wrote it; of the log's end where nothing was written."""
    from voda.timetravel.moment import AtPosition, find, parse_moment

    return await find(store, parse_moment(moment) if moment else AtPosition(await store.position()))


@asynccontextmanager
async def new_store(log: str) -> "AsyncIterator[DurableStore]":
    """Open a log to be filled; if it breaks off, what is there is said, and no new empty file is left behind."""
    from voda.log.factory import display_name, open_store, sqlite_path

    path = sqlite_path(log)
    is_new = path is not None and not path.exists()
    store, begun, reached = await open_store(log), 0, -1
    try:
        begun = await store.position()
        yield store
    except BaseException as error:
        with suppress(VodaError):
            # Somebody else may have begun to write to it, now that it is there.
            reached = await store.position()
        await store.close()
        if path and is_new and reached == 0:
            path.unlink()
        if reached > begun and not isinstance(error, LogDamaged):
            print(
                f"voda: {display_name(log)} has the events up to position {reached:,}, no more: run the command again"
                " to go on, and start no service on it before",
                file=sys.stderr,
            )
        raise
    await store.close()
