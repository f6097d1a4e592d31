"""Finds the hosts and slots there are, by the discovery script, and chooses those that a program gets.

Rules: whatever a script does (hang, print for ever, fail), the answer is a layout or one clear sentence, in bounded
time and memory. A change of order alone is no change; a host in use stays in use as long as it is listed.
"""

import asyncio
import os
import re
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from voda.domain.errors import ClusterUnavailable, InvalidInput
from voda.launcher.addresses import Resolver

_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_LINE: Final = re.compile(r"(?P<host>[^\s:]+)(?:(?::|\s+slots\s*=\s*)(?P<slots>\d{1,6}))?")
_LINE_SHOWN: Final = 60
_OUTPUT_SHOWN: Final = 300
_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 1_000_000
_ENDS_S: Final = 5.0
_DEVICES: Final = frozenset("0123456789abcdefABCDEFGPUMIG-/,")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a program's processes run."""

    slots: Mapping[str, int]
    """host -> processes there, in the order of the ranks; never 0."""
    devices: str | None = None
    """The value of CUDA_VISIBLE_DEVICES; None: as it is."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """host -> its address, where addresses are looked up."""

    @property
    def size(self) -> int:
        return sum(self.slots.values())

    def __str__(self) -> str:
        named = [f"{host}:{slots}" for host, slots in self.slots.items()]
        more = f" and {len(named) - 8} more hosts" if len(named) > 8 else ""
        return f"{self.size} on {' '.join(named[:8])}{more}" if named else "0"


def parse_hosts(text: str, *, slots_per_host: int, source: str) -> Mapping[str, int]:
    """Return host -> slots, in the order listed.

    Lines are `host`, `host:slots` or `host slots=N`; blank lines and comments after # are skipped. A host that stands
    on two lines has the slots of both. `source` is named in messages.

    Raises:
        InvalidInput: a line is none of these.
    """
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not (stripped := line.partition("#")[0].strip()):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None or not _HOST.fullmatch(match["host"]):
            shown = stripped[:_LINE_SHOWN] + ("..." if len(stripped) > _LINE_SHOWN else "")
            raise InvalidInput(
                f"line {number} of what {source} printed is {shown!r}, expected a host such as node-1 or node-1:4;"
                " run the script by hand to see what it prints"
            )
        slots = slots_per_host if match["slots"] is None else int(match["slots"])
        if slots:
            found[match["host"]] = found.get(match["host"], 0) + slots
    return found


def allocate_slots(found: Layout, most: int, used: Layout | None) -> Layout:
    """Return where at most `most` processes run: first on the hosts used now or last, then on the others as listed."""
    kept = [] if used is None else [host for host in used.slots if host in found.slots]
    order = [*kept, *(host for host in found.slots if host not in kept)]
    slots: dict[str, int] = {}
    free = most
    for host in order:
        if taken := min(free, found.slots[host]):
            slots[host] = taken
        free -= taken
    addresses = {host: found.addresses[host] for host in slots if host in found.addresses}
    chosen = Layout(slots=slots, devices=found.devices, addresses=addresses)
    # Equal but for the order, which a mapping does not compare.
    return used if used == chosen else chosen


def are_local(hosts: Iterable[str], names: Iterable[str]) -> bool:
    """Say whether all hosts are this machine, whose own names are given."""
    here = {"localhost", "127.0.0.1", *names}
    return all(host in here for host in hosts)


class Discovery:
    """A host discovery script.

    Args:
        script: a file that lists the hosts; it need not be executable.
        slots_per_host: of hosts that it lists without slots.
        devices_file: holds comma separated CUDA devices; None: the program sees those that voda run sees.
        timeout_s: how long the script may take.
        resolver: looks up the addresses of hosts; None: they are not looked up.

    Raises:
        InvalidInput: there is no such script.
    """

    def __init__(
        self,
        script: Path,
        *,
        slots_per_host: int,
        devices_file: Path | None = None,
        timeout_s: float = _TIMEOUT_S,
        resolver: Resolver | None = None,
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
        self._resolver = resolver

    async def list_hosts(self) -> Layout:
        """Return all slots that there are now.

        Raises:
            ClusterUnavailable: the script failed; another try may succeed.
            InvalidInput: what it printed is no list of hosts.
        """
        text = await self._printed()
        slots = parse_hosts(text, slots_per_host=self._slots_per_host, source=str(self._script))
        if self._resolver is None:
            return Layout(slots=slots, devices=self._devices())
        addresses = await self._resolver.addresses(slots)
        there = {host: count for host, count in slots.items() if host in addresses}
        return Layout(slots=there, devices=self._devices(), addresses=addresses)

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
            said = listener.text(2)[-_OUTPUT_SHOWN:].strip()
            raise ClusterUnavailable(f"{self._script} failed with exit code {code}{': ' if said else ''}{said}")
        return listener.text(1)

    def _devices(self) -> str | None:
        if self._devices_file is None:
            return None
        try:
            with self._devices_file.open("rb") as file:
                devices = file.read(_MOST_BYTES).decode(errors="replace").strip()
        except OSError as error:
            raise ClusterUnavailable(f"{self._devices_file} cannot be read: {error.strerror}") from error
        if not _DEVICES.issuperset(devices):
            raise InvalidInput(f"{self._devices_file} holds {devices[:60]!r}, expected CUDA devices such as 0,1,3")
        return devices


class _Listener(asyncio.SubprocessProtocol):
    def __init__(self, ended: asyncio.Future[None], closed: asyncio.Future[None]) -> None:
        self.ended, self.closed = ended, closed
        self._printed = {1: bytearray(), 2: bytearray()}

    def text(self, descriptor: int) -> str:
        return self._printed[descriptor].decode(errors="replace")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.ended.done():
            return
        self._printed[fd] += data
        if len(self._printed[fd]) > _MOST_BYTES:
            too_much = f"the host discovery script printed more than {_MOST_BYTES} bytes, expected a few lines"
            self.ended.set_exception(InvalidInput(too_much))

    def connection_lost(self, exc: Exception | None) -> None:
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
