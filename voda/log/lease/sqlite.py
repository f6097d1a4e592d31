"""The Lease beside a log in SQLite: a file whose lock the kernel frees when the holder's process ends.

Rules: the process that holds the lock leads; the file's content is for people, and names the holder. A process that is
stopped keeps the lock until it goes on or ends; meanwhile no process decides. It serves processes of one machine on a
local file system, because network file systems may not honour locks.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from voda.clock import Clock
from voda.domain.errors import ChangedMeanwhile, StoreNotWritable, StoreUnavailable
from voda.domain.lease import Lease
from voda.log.lease.record import LeaseRecord, poll

_MOST_BYTES: Final = 4096
_UNKNOWN: Final = "unknown"
"""Stands for a holder whose record is not written yet."""


class SqliteLease:
    """See LeaseStore.

    Its calls touch one small local file and never wait for a lock, so they run on the event loop: a caller that cancels
    one knows whether the lock was taken. The clock dates the renewals, for people to read.
    """

    def __init__(self, log: Path, name: str, *, clock: Clock) -> None:
        # A link to the log has the same Lease as the log.
        target = log.resolve()
        self._path = target.with_name(f"{target.name}-{name}.lease")
        self.key = str(self._path)
        self._clock = clock
        self._handle: int | None = None
        self._mine: Lease | None = None
        self._nudge = asyncio.Event()

    async def read(self) -> Lease | None:
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
            record = LeaseRecord.decode(os.pread(handle, _MOST_BYTES, 0), unreadable_holder=_UNKNOWN)
        finally:
            os.close(handle)
        return _lease(replace(record, holder="") if is_free else record)

    async def take(self, seen: Lease | None, *, holder: str, transitions: int, duration_s: float) -> Lease:
        """See LeaseStore.take; raises StoreUnavailable if the file system has no locks."""
        self._drop()
        try:
            handle = self._open(os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StoreNotWritable(f"{self.key} cannot be written: {error.strerror}") from error
        try:
            # If the file was deleted between opening and locking, another process may lock a new one.
            if not self._lock(handle, fcntl.LOCK_EX) or not self._is_in_place(handle):
                raise ChangedMeanwhile(f"{self.key} is locked by another process")
            record = LeaseRecord.now(self._clock, holder=holder, transitions=transitions, duration_s=duration_s)
            self._write(handle, record)
        except BaseException:
            os.close(handle)
            raise
        self._handle, self._mine = handle, _lease(record)
        return self._mine

    async def renew(self, mine: Lease) -> Lease:
        handle = self._require_handle()
        record = LeaseRecord.renewed(self._clock, mine)
        self._write(handle, record)
        self._mine = _lease(record)
        return self._mine

    async def release(self, mine: Lease) -> None:
        try:
            self._write(self._require_handle(), LeaseRecord(transitions=mine.transitions))
        finally:
            self._drop()

    def watch(self) -> AsyncGenerator[Lease | None, None]:
        return poll(self.read, self._nudge)

    def _require_handle(self) -> int:
        if self._handle is None or not self._is_in_place(self._handle):
            raise ChangedMeanwhile(f"{self.key} is not held by this process, or was deleted")
        return self._handle

    def _open(self, flags: int) -> int:
        # Not inheritable: a training process must not keep the lock of a voda that is gone.
        return os.open(self._path, flags | os.O_CLOEXEC, 0o600)

    def _lock(self, handle: int, kind: int) -> bool:
        """Try to lock without waiting, and return whether it succeeded."""
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

    def _write(self, handle: int, record: LeaseRecord) -> None:
        text = msgspec.json.encode(record)
        try:
            os.pwrite(handle, text, 0)
            os.ftruncate(handle, len(text))
        except OSError as error:
            raise StoreNotWritable(f"{self.key} cannot be written: {error.strerror}") from error

    def _drop(self) -> None:
        """Free the lock; explicitly, because a child between fork and exec would keep it a moment longer."""
        handle, self._handle, self._mine = self._handle, None, None
        if handle is not None:
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def _lease(record: LeaseRecord) -> Lease:
    return record.lease(version=str(record.transitions))
