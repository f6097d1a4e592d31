"""A candidate as a process of its own, to be killed, frozen and cut off: it writes down when it leads.

Rule: it writes only what it would have acted on: a line for each moment at which it believed that it led.
"""

import argparse
import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.waiting import DEADLINE_S, wait_until
from voda.app.election import ElectionTimeouts
from voda.app.leadership import Leadership
from voda.clock import SystemClock
from voda.controller.leader_epochs import LeaderEpochs
from voda.log.factory import lease_of, open_store

TERMS = ElectionTimeouts(duration_s=3.0, renew_deadline_s=2.0, retry_s=0.4)
_BETWEEN_S = 0.01
_STANDS_BY = "stands by"


class Candidate:
    """One process; `kill` it in any case."""

    def __init__(self, log: str, folder: Path, name: str) -> None:
        self.name = name
        self.journal = folder / f"{name}.led"
        self.journal.touch()
        self._said = folder / f"{name}.said"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.contract.candidate", log, str(self.journal), name],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=Path(__file__).resolve().parents[2],
                env={**os.environ, "PYTHONWARNINGS": "default"},  # noqa: TID251 - PATH and the like
            )

    def led(self) -> Sequence[tuple[float, int]]:
        """Return (instant on the machine's steady clock, epoch) of all moments at which it believed that it led."""
        # The last line may be half written.
        lines = [line.split() for line in self.journal.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [(float(at), int(epoch)) for at, epoch in lines]

    def epochs(self) -> Sequence[int]:
        """Return the epochs in which it led, in order."""
        return list(dict.fromkeys(epoch for _, epoch in self.led()))

    def wait_until_leads(self, after: float = 0.0) -> float:
        """Wait until it leads at a moment later than one, and return that moment."""
        wait_until(lambda: any(at > after for at, _ in self.led()), self.said)
        return next(at for at, _ in self.led() if at > after)

    def wait_until_it_stands_by(self) -> None:
        """Wait until it has seen that another one leads."""
        wait_until(lambda: _STANDS_BY in self._said.read_text(errors="replace"), self.said)

    def kill(self) -> None:
        """End it as a crash would, frozen or not."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def terminate(self) -> None:
        """Have it hand over and end."""
        self.process.terminate()
        self.process.wait(DEADLINE_S)

    def freeze(self) -> None:
        """Stop it where it is."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def said(self) -> str:
        """Return what it wrote for people."""
        return f"{self.name}: {self._said.read_text(errors='replace')[-3000:]}"


async def campaign(log: str, journal: Path, name: str) -> None:
    """Campaign until told to end."""
    clock = SystemClock()
    store = await open_store(log)
    leadership = Leadership(lease_of(store, clock=clock), LeaderEpochs(store, clock), name, timings=TERMS)
    loop = asyncio.get_running_loop()

    async def lead(epoch: int) -> None:
        with journal.open("a", buffering=1) as file:
            while True:
                # Before it is asked: it may be frozen at any point.
                at = loop.time()
                if leadership.is_leading:
                    file.write(f"{at} {epoch}\n")
                await asyncio.sleep(_BETWEEN_S)

    async def stand_by() -> None:
        while leadership.leader in ("", name):  # noqa: ASYNC110 - a process of its own
            await asyncio.sleep(_BETWEEN_S)
        logging.info(_STANDS_BY)
        await asyncio.Event().wait()

    task = loop.create_task(leadership.run(lead, stand_by))
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
    await store.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("journal", type=Path)
    parser.add_argument("name")
    asked = parser.parse_args()
    asyncio.run(campaign(asked.log, asked.journal, asked.name))
