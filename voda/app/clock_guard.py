"""Notices that the machine's clock is more than a day ahead of, or behind, what log and uptime account for.

Rule: nothing that cannot be taken back is done by such a clock until an admin has confirmed it (`voda clock --accept`).
A jump while the machine runs is sure, as its uptime is counted apart: time goes on without it. After a start of the
machine it is not: it may have been off for so long; time is believed, and only retention waits.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from voda.clock import SystemClock, running_s, up_s
from voda.files import write_whole
from voda.process_table import boot_id
from voda.text import short

MOST_AHEAD_S: Final = 86_400.0
_FILE: Final = "clock.json"
_NOTED_EVERY_S: Final = 600.0
_READ_EVERY_S: Final = 1.0
_log = logging.getLogger(__name__)


class ClockReading(Struct, frozen=True, kw_only=True):
    """What a clock that is trusted showed, and for how long its machine had run by then."""

    wall_s: float
    boot_id: str = ""
    """Empty: of an event in the log, which does not say."""
    up_s: float = 0.0


def ahead_s(before: ClockReading, now: ClockReading) -> float:
    """Return by how many seconds the clock is ahead of the time that is known to have passed; negative: behind."""
    passed_s = now.up_s - before.up_s if _is_one_run(before, now) else now.up_s
    return now.wall_s - before.wall_s - passed_s


def shift(ahead: float) -> str:
    """Return in words by how many seconds a clock is ahead, or behind where they are negative."""
    return f"{short(abs(ahead))} {'behind' if ahead < -0.5 else 'ahead of'}"


def _is_one_run(before: ClockReading, now: ClockReading) -> bool:
    # A container that starts anew may count from then, under the same boot id.
    return before.boot_id == now.boot_id and before.up_s <= now.up_s


def read_clock() -> ClockReading:
    """Return what the clock shows now."""
    return ClockReading(wall_s=SystemClock().time_of_day(), boot_id=boot_id(), up_s=up_s())


def accept(folder: Path, now: ClockReading) -> None:
    """Confirm the clock as it is, for the voda of a folder; OSError: it cannot be written."""
    write_whole(folder / _FILE, msgspec.json.encode(now), durably=True, mode=0o600)


def confirmed(folder: Path) -> ClockReading | None:
    """Return the last reading that was trusted; None: there is none, or none that can be read."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=ClockReading)
    return None


class ClockGuard:
    """Compares the clock with the last reading that was trusted.

    Args:
        folder: of voda, where that reading lies.
        last_event_at: instant of the log's last event; 0 = it has none.
        now: the clock at this moment.
        count_s: counts the seconds since the machine's boot from any beginning.
    """

    def __init__(
        self,
        folder: Path,
        last_event_at: float,
        now: ClockReading,
        *,
        count_s: Callable[[], float] = running_s,
    ) -> None:
        self.problem = ""
        """Why the clock is not trusted, one sentence; empty where it is."""
        self._folder = folder
        self._boot_id = now.boot_id
        self._count_s = count_s
        self._before_s = now.up_s - count_s()
        self._read_at = 0.0
        found = confirmed(folder)
        if found is None or (found.boot_id != now.boot_id and found.wall_s < last_event_at):
            found = ClockReading(wall_s=last_event_at) if last_event_at else now
        self._trusted = found

    def believed(self, wall_s: float) -> float:
        """Return what of a reading of the wall clock counts."""
        now = self._reading(wall_s)
        if abs(ahead := ahead_s(self._trusted, now)) > MOST_AHEAD_S and now.up_s >= self._read_at:
            self._read_at = now.up_s + _READ_EVERY_S
            self._trusted = confirmed(self._folder) or self._trusted
            ahead = ahead_s(self._trusted, now)
        if abs(ahead) <= MOST_AHEAD_S:
            self.problem = ""
            return wall_s
        self.problem = (
            f"the clock is {shift(ahead)} what log and uptime account for: no folder is deleted by retention until an"
            " admin has run `voda clock --accept`, or the clock is right again"
        )
        # Of a clock that is behind, the log's last event says enough: time never goes back.
        return wall_s - ahead if ahead > 0 and _is_one_run(self._trusted, now) else wall_s

    async def run(self) -> None:
        """Note now and then what the clock shows, until cancelled."""
        while True:
            await self.note(SystemClock().time_of_day())
            await asyncio.sleep(_NOTED_EVERY_S)

    async def note(self, wall_s: float) -> None:
        """Note what the clock shows, unless it is far ahead or behind.

        Beside the reading of a clock far behind, as after a boot in 1970, the time that NTP then sets would be ahead.
        """
        now, accepted = self._reading(wall_s), confirmed(self._folder)
        if accepted is not None and accepted.boot_id == self._boot_id:
            self._trusted = accepted
        if abs(ahead_s(self._trusted, now)) > MOST_AHEAD_S:
            return
        writing = asyncio.ensure_future(asyncio.to_thread(accept, self._folder, now))
        try:
            await asyncio.shield(writing)
            self._trusted = now
        except OSError as error:
            _log.info("what the clock shows is not noted: %s", error)
        finally:
            # Nothing is written to the folder once this has ended.
            await asyncio.wait([writing])

    def _reading(self, wall_s: float) -> ClockReading:
        return ClockReading(wall_s=wall_s, boot_id=self._boot_id, up_s=self._before_s + self._count_s())
