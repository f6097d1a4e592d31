"""The end of a log that a `voda serve` writes, read from outside as it grows."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from voda.domain.errors import InvalidInput, NotALog, StoreUnavailable
from voda.events.envelope import Event
from voda.log.factory import open_log
from voda.log.store import EventStore

_LOOK_S = 0.002
_PAGE = 2_000
_OPEN_S = 60.0


class Tail:
    """What is appended from its opening on.

    Args:
        log: a path or URL; waited for until it is there.
    """

    def __init__(self, log: str) -> None:
        self._log = log
        self._store: EventStore | None = None
        self.position = 0
        self._unseen: deque[Event] = deque()
        """Read, and not returned yet."""

    async def __aenter__(self) -> Self:
        deadline = time.perf_counter() + _OPEN_S
        while self._store is None:
            try:
                self._store = await open_log(self._log)
            except (InvalidInput, NotALog, StoreUnavailable):
                if time.perf_counter() > deadline:
                    raise
                await asyncio.sleep(0.1)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._store is not None, "closed once it was opened"
        await self._store.close()

    async def new(self) -> Sequence[Event]:
        """Return what was appended since the last call."""
        assert self._store is not None, "read while it is open"
        found = list(self._unseen)
        self._unseen.clear()
        while page := await self._store.read(self.position, _PAGE):
            found += page
            self.position = page[-1].position
        return found

    async def until(self, is_it: Callable[[Event], bool], *, within_s: float = 60.0) -> tuple[Event, float]:
        """Return the next event of a kind, and the instant it was seen in the log (`time.perf_counter`).

        Raises:
            RuntimeError: it does not come.
        """
        deadline = time.perf_counter() + within_s
        while time.perf_counter() < deadline:
            self._unseen.extend(await self.new())
            while self._unseen:
                if is_it(event := self._unseen.popleft()):
                    return event, time.perf_counter()
            await asyncio.sleep(_LOOK_S)
        raise RuntimeError(f"waited {within_s:g} s in vain for an event; the log ends at {self.position}")

    async def rested(self, quiet_s: float, *, within_s: float = 120.0) -> None:
        """Return once nothing has been appended for a while.

        Raises:
            RuntimeError: it does not come to rest.
        """
        deadline = time.perf_counter() + within_s
        last = time.perf_counter()
        while (now := time.perf_counter()) < last + quiet_s:
            if await self.new():
                last = now
            if now > deadline:
                raise RuntimeError(f"the log does not rest for {quiet_s:g} s within {within_s:g} s")
            await asyncio.sleep(0.05)
