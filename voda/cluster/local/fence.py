"""The fencing token of a local pool: of several voda on one folder of jobs, the newest leader alone changes anything.

1. A leader that opens the pool writes its token into `.leaders/<pool>.json` in the folder of jobs.
2. All that it does of jobs, it does in turns: lock that file, check that the token is still its own, act, unlock.

Rules: the token alone decides, and a refusal is final; the lock makes check and act one step, and a lock that stays
taken decides nothing, as any job of voda's own user can take it. The token is not flushed to the disk: it keeps
running processes apart, and none outlives a power cut.
"""

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from voda.cluster.local.token_file import FencingToken, TokenFile, unlock
from voda.domain.errors import Fenced
from voda.process_table import start_of

_TRIES: Final = 5
_PAUSE_S: Final = 0.002
_TAKE_WAIT_S: Final = 3.0
_POLL_S: Final = 0.02
_log = logging.getLogger(__name__)


class Fence:
    """Refuses a leader of a pool that is not the newest any more; used on one event loop, in turns that do not wait."""

    def __init__(self, jobs: Path, pool: str) -> None:
        self._file = TokenFile(jobs, pool)
        self._pool = pool
        self._token: FencingToken | None = None
        self._tries = self._most_tries = _TRIES
        self._lock: int | None = None
        self._depth = 0
        """Turns within turns; 0 outside of any."""
        self._warned: set[str] = set()
        self._is_alone = False
        """Whether no other process can lead: then nothing that a job writes here has a say."""
        self._refusal = "it is not led yet"

    async def take(self, token_id: str, epoch: int | None, *, wait_s: float = _TAKE_WAIT_S) -> None:
        """Lead from now on, once the turn of the former leader is over, or has taken too long.

        Args:
            token_id: never used before.
            epoch: of the leadership; None: no other process can lead, so it is that of the former one, and whatever the
                file says later is not read.
            wait_s: how long a former leader may stand still in a turn; nobody is waited for without an epoch.

        Raises:
            Fenced: a living process leads in a later epoch.
            OSError: the file cannot be written.
        """
        self.close()
        self._is_alone = epoch is None
        self._tries = self._most_tries = _TRIES
        lock = await self._lock_to_take(0.0 if epoch is None else wait_s)
        try:
            former = self._file.read()
            if former is not None and epoch is not None and former.epoch > epoch and former.is_of_another_process:
                raise self._refused(former)
            epoch = epoch if epoch is not None else former.epoch if former is not None else 0
            pid = os.getpid()
            self._token = FencingToken(id=token_id, epoch=epoch, pid=pid, start=start_of(pid) or 0)
            self._file.write(self._token)
            self._refusal = ""
        finally:
            unlock(lock)
        self._file.remove_moved()

    def close(self) -> None:
        """Do not lead any more; the token stays, as its successor needs nothing of it."""
        self._refusal = "it is not led any more"
        self._warned.clear()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Act as the leader for the length of the block; turns may be nested.

        Raises:
            Fenced: another one leads, and the block is not begun; so it will be at each further call.
        """
        if self._depth == 0:
            self._begin()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                unlock(self._lock)
                self._lock = None

    def check(self) -> None:
        """Raise Fenced where another one leads."""
        with self.turn():
            pass

    def expect_turn(self) -> None:
        """Raise RuntimeError outside of a turn: a mistake in the program."""
        if not self._depth:
            raise RuntimeError(f"jobs of pool {self._pool} are changed in turns alone")

    def _begin(self) -> None:
        if self._refusal or self._token is None:
            raise Fenced(f"pool {self._pool}: {self._refusal}")
        if self._is_alone:
            return
        self._lock = self._lock_to_act()
        try:
            found = self._file.read()
            if found is not None and found != self._token and found.epoch >= self._token.epoch:
                raise self._refused(found)
            if found != self._token:
                self._write_again(self._token)
        except BaseException:
            unlock(self._lock)
            self._lock = None
            raise

    def _lock_to_act(self) -> int | None:
        """Lock the file; None where it is not there, or somebody keeps the lock, which costs time only once."""
        for left in reversed(range(self._tries)):
            try:
                lock = self._file.lock()
            except OSError:
                return None
            if lock is not None:
                self._tries = self._most_tries
                return lock
            if left:
                time.sleep(_PAUSE_S)
        self._tries = 1
        self._warn("%s keeps the lock of its token; it goes on without it", self._file.holder())
        return None

    async def _lock_to_take(self, wait_s: float) -> int | None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + wait_s
        while True:
            # What a job does between these two is tried again; where it is the disk, the write that follows says so.
            with suppress(OSError):
                self._file.make()
                if (lock := self._file.lock()) is not None:
                    return lock
            if loop.time() >= give_up_at:
                self._warn("%s keeps the lock of its token; it is taken over", self._file.holder())
                return None
            await asyncio.sleep(_POLL_S)

    def _write_again(self, token: FencingToken) -> None:
        self._warn("the token of its leader was removed or changed, and is written again%s", "")
        try:
            self._file.write(token)
        except OSError as error:
            self._warn("the token of its leader cannot be written: %s", error)
            return
        unlock(self._lock)
        self._lock = None
        with suppress(OSError):
            self._lock = self._file.lock()

    def _refused(self, leader: FencingToken) -> Fenced:
        who = "a newer leader" if leader.pid == os.getpid() else f"process {leader.pid}"
        self._refusal = f"{who} in epoch {leader.epoch} leads its jobs on this machine"
        return Fenced(f"pool {self._pool}: {self._refusal}")

    def _warn(self, text: str, what: object) -> None:
        """Warn once in a leadership: a job can do the same again and again."""
        if text not in self._warned:
            self._warned.add(text)
            _log.warning(f"pool=%s {text}", self._pool, what)
