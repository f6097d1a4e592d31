"""Asks the discovery script, and the file of devices, what there is now.

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
_SHOWN_BYTES = 300
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

    async def look(self) -> Layout:
        """Return all slots that there are.

        Raises:
            ClusterUnavailable: the script failed; another try may succeed.
            InvalidInput: what it printed is no list of hosts.
        """
        text = await self._printed()
        slots = parse_hosts(text, slots_per_host=self._slots_per_host, source=str(self._script))
        return Layout(slots=slots, devices=self._devices())

    async def _printed(self) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ClusterUnavailable(f"{self._script} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._timeout_s):
                printed, complaint = await _both(process)
                code = await process.wait()
        except BaseException as error:
            await _end(process)
            if isinstance(error, TimeoutError):
                raise ClusterUnavailable(f"{self._script} took longer than {self._timeout_s:g} s") from error
            raise
        if code:
            said = complaint[-_SHOWN_BYTES:].decode(errors="replace").strip()
            raise ClusterUnavailable(f"{self._script} failed with exit code {code}{': ' if said else ''}{said}")
        return printed.decode(errors="replace")

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


async def _both(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Return all that a process prints, and all that it complains of."""
    try:
        async with asyncio.TaskGroup() as group:
            reads = [group.create_task(_most(stream)) for stream in (process.stdout, process.stderr)]
    except* InvalidInput as errors:
        raise errors.exceptions[0] from None
    return reads[0].result(), reads[1].result()


async def _most(stream: asyncio.StreamReader | None) -> bytes:
    """Return all that a stream holds.

    Raises:
        InvalidInput: it is more than any list of hosts.
    """
    chunks = bytearray()
    while stream is not None and (chunk := await stream.read(65_536)):
        chunks += chunk
        if len(chunks) > MOST_BYTES:
            raise InvalidInput(f"the host discovery script printed more than {MOST_BYTES} bytes, expected a few lines")
    return bytes(chunks)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the script and whatever it started in its session: that may hold the pipes when the script has ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_ENDS_S):
            await process.wait()
            # Pipes are closed only once they have been read to their end.
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(65_536):
                    pass
