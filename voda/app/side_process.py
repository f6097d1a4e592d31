"""Processes beside the service, for work that would hold up its loop: how they start, what they may use, how they end.

Rules: none outlives the service, however that ends: a thread of it waits for the end of its standard input, which no
other process holds. (PR_SET_PDEATHSIG would come when the thread ends that started it.) It gives way to all else, and
where memory runs short, is the first to go. Messages are bytes behind their length, both ways.
"""

import asyncio
import os
import resource
import struct
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from msgspec import Struct

from voda.config import environment

_HEADER: Final = struct.Struct(">Q")
"""Before each message: its length in bytes."""
_INPUT, _OUTPUT = 0, 1
_GIVEN_UP_FIRST: Final = "500"
"""Of 1,000: how much sooner the kernel ends it than others, where memory runs short."""
_GROUP: Final = Path("/sys/fs/cgroup")
_KEPT_FREE: Final = 0.5
"""Share of the memory that is left in a container for the service."""


class ProcessBounds(Struct, frozen=True, kw_only=True):
    """What a process may use."""

    niceness: int
    memory_bytes: int
    """Of its data; less where the container has less."""
    cpu_s: int | None = None
    """In its whole life; None: as much as it is let."""


class SideProcess:
    """A process that has started, as the service sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._input, self._output = process.stdin, process.stdout

    async def send(self, message: bytes) -> None:
        """Send a message; raises OSError where the process has ended."""
        self._input.write(_HEADER.pack(len(message)) + message)
        await self._input.drain()

    async def receive(self) -> bytes:
        """Return its next message; raises EOFError where it has ended."""
        (size,) = _HEADER.unpack(await self._output.readexactly(_HEADER.size))
        return await self._output.readexactly(size)


@asynccontextmanager
async def side_process(module: str) -> AsyncIterator[SideProcess]:
    """Run a module, which calls `begin` first, in a process of its own for the length of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        # Not what lies in the folder in which voda was started, which may be another user's.
        *("-P", "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # In a session of its own, so that Ctrl-C does not reach it.
        start_new_session=True,
        # Each thread of the library would map memory of its own, on a machine of many cores more than the bound.
        env={**environment(), "OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        yield SideProcess(process)
    finally:
        # The loop may be closed before it notices that the process's end broke the pipe.
        if process.stdin is not None:
            process.stdin.close()
        with suppress(ProcessLookupError):
            process.kill()
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.shield(ended)
        finally:
            # A failing service cancels twice: even then the loop must not close before the process has ended.
            await ended


def begin(bounds: ProcessBounds) -> Callable[[], bytes]:
    """Bound this process, and return what waits for its next message.

    The process ends at once where the service has ended, whatever it does then.
    """
    messages = SimpleQueue[bytes]()
    threading.Thread(target=_read, args=(messages,), daemon=True).start()
    os.nice(bounds.niceness)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_GIVEN_UP_FIRST, "ascii")
    memory_bytes = min(bounds.memory_bytes, memory_left(_GROUP))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    if bounds.cpu_s is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (bounds.cpu_s, bounds.cpu_s))
    return messages.get


def reply(message: bytes) -> None:
    """Send the service a message."""
    left = memoryview(_HEADER.pack(len(message)) + message)
    while left:
        left = left[os.write(_OUTPUT, left) :]


def memory_left(group: Path) -> int:
    """Return the bytes that a process may take of what its container has left; as good as endless without a limit.

    Where a container takes more than its limit, the kernel ends all of its processes, the service among them.
    """
    try:
        limit, stat = (group / "memory.max").read_text("ascii"), (group / "memory.stat").read_text("ascii")
        used = dict(line.split() for line in stat.splitlines())
        left = int(limit) - int(used["anon"]) - int(used.get("shmem", 0))
        return max(0, int(left * (1 - _KEPT_FREE)))
    except (OSError, ValueError, KeyError):
        # No limit is written as a word; and other systems have no such files.
        return sys.maxsize


def _read(messages: "SimpleQueue[bytes]") -> None:
    try:
        while True:
            (size,) = _HEADER.unpack(_exactly(_HEADER.size))
            messages.put(_exactly(size))
    except (EOFError, OSError):
        os._exit(0)


def _exactly(size: int) -> bytes:
    # By itself, since a buffered standard input would be locked when the interpreter ends.
    parts = list[bytes]()
    while size:
        if not (part := os.read(_INPUT, min(size, 1 << 20))):
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
