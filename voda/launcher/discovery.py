"""Runs the discovery script and reads the file of devices.

Rule: whatever a script does (hang, print for ever, fail), the answer is a layout or one clear sentence, in bounded
time and memory.
"""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from voda.domain.errors import ClusterUnavailable, InvalidInput
from voda.launcher.hosts import Layout, parse_hosts

TIMEOUT_S = 10.0
MOST_BYTES = 1_000_000
_ENDS_S = 5.0
_SHOWN = 300
_DEVICES = frozenset("0123456789abcdefABCDEFGPUMIG-/,")


class Discovery:
    """A host discovery script.

    Args:
        script: a file that lists the hosts; it need not be executable.
        slots_per_host: of hosts that it lists without slots.
        devices_file: holds comma separated CUDA devices; None: the program sees those that voda run sees.
        timeout_s: how long the script may take.

    Raises:
        InvalidInput: there is no such script.
    """

    def __init__(
        self, script: Path, *, slots_per_host: int, devices_file: Path | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        if not script.is_file():
            raise InvalidInput(
                f"--host-discovery-script {script}: there is no such file, expected a script that prints one host or"
                " host:slots per line"
            )
        self._argv = [str(script.absolute())] if os.access(script, os.X_OK) else ["/bin/sh", str(script.absolute())]
        self._script = script
        self._slots_per_host = slots_per_host
        self._devices_file = devices_file
        self._timeout_s = timeout_s

    async def list_hosts(self) -> Layout:
        """Return all slots that there are now.

        Raises:
            ClusterUnavailable: the script failed; another try may succeed.
            InvalidInput: what it printed is no list of hosts.
        """
        text = await self._printed()
        slots = parse_hosts(text, slots_per_host=self._slots_per_host, source=str(self._script))
        return Layout(slots=slots, devices=self._devices())

    async def _printed(self) -> str:
        loop = asyncio.get_running_loop()
        listener = _Listener(loop.create_future(), loop.create_future())
        try:
            transport, _ = await loop.subprocess_exec(
                lambda: listener, *self._argv, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise ClusterUnavailable(f"{self._script} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._timeout_s):
                await listener.ended
        except TimeoutError as error:
            raise ClusterUnavailable(f"{self._script} took longer than {self._timeout_s:g} s") from error
        finally:
            await _end(transport, listener)
        if code := transport.get_returncode():
            said = listener.text(2)[-_SHOWN:].strip()
            raise ClusterUnavailable(f"{self._script} failed with exit code {code}{': ' if said else ''}{said}")
        return listener.text(1)

    def _devices(self) -> str | None:
        if self._devices_file is None:
            return None
        try:
            with self._devices_file.open("rb") as file:
                devices = file.read(MOST_BYTES).decode(errors="replace").strip()
        except OSError as error:
            raise ClusterUnavailable(f"{self._devices_file} cannot be read: {error.strerror}") from error
        if not _DEVICES.issuperset(devices):
            raise InvalidInput(f"{self._devices_file} holds {devices[:60]!r}, expected CUDA devices such as 0,1,3")
        return devices


class _Listener(asyncio.SubprocessProtocol):
    """Collects what a script prints.

    Args:
        ended: done when the script has ended and closed its outputs; fails when it prints too much.
        closed: done when the transport is closed.
    """

    def __init__(self, ended: asyncio.Future[None], closed: asyncio.Future[None]) -> None:
        self.ended, self.closed = ended, closed
        self._printed = {1: bytearray(), 2: bytearray()}

    def text(self, descriptor: int) -> str:
        """Return what it printed to standard output, 1, or standard error, 2."""
        return self._printed[descriptor].decode(errors="replace")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """See asyncio.SubprocessProtocol."""
        if self.ended.done():
            return
        self._printed[fd] += data
        if len(self._printed[fd]) > MOST_BYTES:
            too_much = f"the host discovery script printed more than {MOST_BYTES} bytes, expected a few lines"
            self.ended.set_exception(InvalidInput(too_much))

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.SubprocessProtocol."""
        self.closed.set_result(None)
        if not self.ended.done():
            self.ended.set_result(None)


async def _end(transport: asyncio.SubprocessTransport, listener: _Listener) -> None:
    """End the script and all processes of its session: they may hold the outputs after the script has ended."""
    if not listener.closed.done():
        with suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
    transport.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_ENDS_S):
            await listener.closed
