"""The Lease beside a log in SQLite: a file whose lock the kernel frees when its holder's process ends.

Rules: who leads is whoever holds the lock; what the file says is for people, and for telling whose lock it is. A
process that is stopped keeps the lock for as long as it is: the log's epochs are no matter of time, so nobody decides
meanwhile. For processes of one machine, on a local file system: over a network locks are the server's affair.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.clock import Clock
from voda.domain.errors import ChangedMeanwhile, StoreNotWritable, StoreUnavailable
from voda.domain.lease import Lease
from voda.log.lease.polling import poll

_MOST_BYTES: Final = 4096
_UNKNOWN: Final = "unknown"
"""A holder that has not said who it is, or has not finished saying so."""


class _Said(Struct, frozen=True, kw_only=True):
    """What the file says."""

    holder: str = _UNKNOWN
    transitions: int = 0
    duration_s: float = 0.0
    renewed_at: str = ""


class SqliteLease:
    """See LeaseStore.

    Its calls touch one small local file and never wait for a lock, so they are made on the event loop: whoever cancels
    one knows whether the lock was taken.

    Args:
        log: the SQLite file beside which it lies.
        name: of the Lease, where a log has several.
        clock: dates the renewals, for people to read.
    """

    def __init__(self, log: Path, name: str, *, clock: Clock) -> None:
        # By another name of the same log it is the same Lease.
        target = log.resolve()
        self._path = target.with_name(f"{target.name}-{name}.lease")
        self.key = str(self._path)
        self._clock = clock
        self._handle: int | None = None
        self._mine: Lease | None = None
        self._nudge = asyncio.Event()

    async def read(self) -> Lease | None:
        """See LeaseStore.read."""
        if self._handle is not None:
            return self._mine if self._is_in_place(self._handle) else None
        try:
            handle = self._open(os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"{self.key} cannot be read: {error.strerror}") from error
        try:
            is_free = self._lock(handle, fcntl.LOCK_SH)
            said = _read(handle)
        finally:
            os.close(handle)
        return _lease(replace(said, holder="") if is_free else said)

    async def take(self, seen: Lease | None, *, holder: str, transitions: int, duration_s: float) -> Lease:
        """See LeaseStore.take.

        Raises:
            ChangedMeanwhile: another process holds the lock.
            StoreNotWritable: the file cannot be written.
            StoreUnavailable: the file system has no locks.
        """
        self._drop()
        try:
            handle = self._open(os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StoreNotWritable(f"{self.key} cannot be written: {error.strerror}") from error
        try:
            # Deleted between opening and locking, it would be locked by us alone, and another file by somebody else.
            if not self._lock(handle, fcntl.LOCK_EX) or not self._is_in_place(handle):
                raise ChangedMeanwhile(f"{self.key} is locked by another process")
            said = _Said(holder=holder, transitions=transitions, duration_s=duration_s, renewed_at=self._now())
            self._write(handle, said)
        except BaseException:
            os.close(handle)
            raise
        self._handle, self._mine = handle, _lease(said)
        return self._mine

    async def renew(self, mine: Lease) -> Lease:
        """See LeaseStore.renew."""
        handle = self._held()
        said = _Said(
            holder=mine.holder, transitions=mine.transitions, duration_s=mine.duration_s, renewed_at=self._now()
        )
        self._write(handle, said)
        self._mine = _lease(said)
        return self._mine

    async def release(self, mine: Lease) -> None:
        """See LeaseStore.release."""
        try:
            self._write(self._held(), _Said(holder="", transitions=mine.transitions))
        finally:
            self._drop()

    def watch(self) -> AsyncGenerator[Lease | None, None]:
        """See LeaseStore.watch."""
        return poll(self.read, self._nudge)

    def _held(self) -> int:
        if self._handle is None or not self._is_in_place(self._handle):
            raise ChangedMeanwhile(f"{self.key} is not held by this process, or was deleted")
        return self._handle

    def _open(self, flags: int) -> int:
        # Inheritable by nobody: a training process must not keep the lock of a voda that is gone.
        return os.open(self._path, flags | os.O_CLOEXEC, 0o600)

    def _lock(self, handle: int, kind: int) -> bool:
        """Lock without waiting, and return whether nobody was in the way."""
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise StoreUnavailable(f"{self.key} cannot be locked: {error.strerror}; use a local file system") from error
        return True

    def _is_in_place(self, handle: int) -> bool:
        """Return whether the open file is still the one of that name."""
        with suppress(OSError):
            return os.path.samestat(os.fstat(handle), self._path.stat())
        return False

    def _write(self, handle: int, said: _Said) -> None:
        text = msgspec.json.encode(said)
        try:
            os.pwrite(handle, text, 0)
            os.ftruncate(handle, len(text))
        except OSError as error:
            raise StoreNotWritable(f"{self.key} cannot be written: {error.strerror}") from error

    def _drop(self) -> None:
        """Free the lock; explicitly, for a child between fork and exec would keep it a moment longer."""
        handle, self._handle, self._mine = self._handle, None, None
        if handle is not None:
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now(), UTC).isoformat()


def _read(handle: int) -> _Said:
    try:
        return msgspec.json.decode(os.pread(handle, _MOST_BYTES, 0), type=_Said)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # Being written at this moment, or by hand.
        return _Said()


def _lease(said: _Said) -> Lease:
    return Lease(
        holder=said.holder,
        transitions=said.transitions,
        duration_s=said.duration_s,
        renewed_at=said.renewed_at,
        version=str(said.transitions),
        is_enforced=True,
    )
