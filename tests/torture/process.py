"""voda as a process that is killed, stopped and started again; and what it said while it lived.

Rule: a process that ends although nobody killed it is told apart: that is a finding, not an accident.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

TRY_AGAIN = 75
"""Exit status of a voda that asks to be started again later, such as while its log's server is away."""
_KILLED_S = 30.0
_PROBE_S = 3.0
_LAST_BYTES = 2_000


class Voda:
    """A `voda up` on a port that it keeps."""

    def __init__(self, url: str, command: Sequence[str], environment: Mapping[str, str], said: Path) -> None:
        self.url = url
        self.odd_ends: list[str] = []
        """How it ended by itself, where it should not have."""
        self.ends_to_try_again = 0
        self.is_stopped = False
        self._command = command
        self._environment = environment
        self._said = said
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process is there, stopped or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start its process, if there is none."""
        if self.is_running:
            return
        self.note_end()
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        self.is_stopped = False

    async def kill(self) -> bool:
        """End it as kill -9 does; return whether there was anything to kill."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            self._process = process
            self.note_end()
            return False
        process.kill()
        await asyncio.to_thread(process.wait, _KILLED_S)
        self.is_stopped = False
        return True

    def stop(self) -> None:
        """Have it stand still, as a machine that swaps or a debugger would."""
        self._signal(signal.SIGSTOP)
        self.is_stopped = True

    def go_on(self) -> None:
        """Let it go on where it stood."""
        self._signal(signal.SIGCONT)
        self.is_stopped = False

    async def end(self, within_s: float) -> None:
        """Ask it to end, and wait; kill it, and take note, where it does not."""
        if (process := self._process) is None or not self.is_running:
            return
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, within_s)
        except subprocess.TimeoutExpired:
            self.odd_ends.append(f"it did not end within {within_s:g} s of SIGTERM")
            process.kill()
            await asyncio.to_thread(process.wait, _KILLED_S)
            self._process = None
        self.note_end(was_asked=True)

    def note_end(self, *, was_asked: bool = False) -> None:
        """Take note of an end that nobody asked for, or of how it ended when asked to."""
        process, self._process = self._process, None
        if process is None or ((status := process.wait(_KILLED_S)) == 0 and was_asked):
            return
        if status == TRY_AGAIN:
            self.ends_to_try_again += 1
        else:
            self.odd_ends.append(f"it ended by itself with status {status}: {self._last_words()}")

    async def is_ready(self, session: aiohttp.ClientSession) -> bool:
        """Return whether it says that it does its work."""
        try:
            async with session.get(f"{self.url}/readyz", timeout=aiohttp.ClientTimeout(total=_PROBE_S)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            os.kill(self._process.pid, number)

    def _last_words(self) -> str:
        with self._said.open("rb") as said:
            said.seek(max(0, said.seek(0, os.SEEK_END) - _LAST_BYTES))
            return said.read().decode(errors="replace").strip()
