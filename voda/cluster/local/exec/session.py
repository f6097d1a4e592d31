"""One command beside a replica, as voda sees it: its supervisor, the pipes or the terminal, and how it ended.

Rule: nothing is read before it is asked for; closing the line to the supervisor ends the command, whatever it does.
"""

import asyncio
import fcntl
import os
import pty
import stat
import struct
import sys
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from socket import socketpair
from typing import Final

import msgspec

import voda
from voda.cluster.local.exec import supervisor
from voda.cluster.local.exec.descriptors import Descriptor, any_readable
from voda.cluster.local.processes.replica import (
    RESET_SIGNALS,
    SCHEDULER,
    ReplicaCommand,
    ReplicaProcess,
    start_instructions,
)
from voda.cluster.port import CommandEnd, CommandOutput, CommandRequest, TerminalSize
from voda.domain.errors import ClusterUnavailable
from voda.process_table import exit_status

_RUN: Final = (
    "import sys; sys.path.append(sys.argv[1]); from voda.cluster.local.exec.supervisor import main;"
    " sys.exit(main(sys.argv[2:]))"
)
_AFTER_END_BYTES: Final = 2 << 20
"""Read once the command has ended: what pipes may hold, but not what others go on to write into them."""
_HIGH: Final = 64
"""Descriptors from here on are in nobody's way while they are handed over."""
_END_OF_INPUT: Final = b"\x04"
"""What a terminal takes for it."""


class ExecSession:
    """An adapter of the RemoteCommand port.

    Args:
        control: the line to its supervisor.
        outputs: its standard output and error, or its terminal alone.
        stdin: its standard input, or its terminal; None where it has none.
    """

    def __init__(self, control: Descriptor, outputs: Sequence[Descriptor], stdin: Descriptor | None) -> None:
        self._control = control
        self._outputs = [*outputs]
        """Those that have not ended; the one that was read last comes last."""
        self._errors = outputs[1] if len(outputs) > 1 else None
        self._stdin = stdin
        self._has_terminal = stdin is outputs[0]
        self._report = b""
        self._has_ended = False
        self._left = _AFTER_END_BYTES

    async def read(self) -> CommandOutput | CommandEnd:
        while True:
            if (output := self._read_ready()) is not None:
                return output
            if self._has_ended:
                return self._end()
            self._look_for_end()
            if not self._has_ended:
                await any_readable((self._control, *self._outputs))

    def _read_ready(self) -> CommandOutput | None:
        for output in tuple(self._outputs):
            if (data := output.read_ready()) is None:
                continue
            self._outputs.remove(output)
            if data and self._left > 0:
                self._outputs.append(output)
                self._left -= len(data) if self._has_ended else 0
                return CommandOutput(data, is_error=output is self._errors)
        return None

    async def write(self, data: bytes) -> None:
        if self._stdin is not None and self._stdin.is_open and not await self._stdin.write(data):
            await self.end_input()

    async def end_input(self) -> None:
        if self._stdin is None or not self._stdin.is_open:
            return
        if self._has_terminal:
            await self._stdin.write(_END_OF_INPUT)
        else:
            self._stdin.close()

    async def resize(self, size: TerminalSize) -> None:
        if self._stdin is not None and self._has_terminal:
            _set_size(self._stdin.number, size)

    def _look_for_end(self) -> None:
        while (piece := self._control.read_ready()) is not None:
            self._report += piece[: supervisor.REPORT_BYTES - len(self._report)]
            if not piece:
                self._has_ended = True
                return

    def _end(self) -> CommandEnd:
        try:
            return msgspec.json.decode(self._report, type=CommandEnd)
        except msgspec.DecodeError as error:
            raise ClusterUnavailable(
                "how the command ended is not known: the process that watched it is gone"
            ) from error


@asynccontextmanager
async def running_command(
    request: CommandRequest, command: ReplicaCommand, env: Mapping[str, str], replica: ReplicaProcess
) -> AsyncIterator[ExecSession]:
    """Run a command for the length of the block.

    Args:
        request: what to run.
        command: as whom, where and within which limits.
        env: its environment.
        replica: beside which; it has not ended before nothing of the command is left.

    Raises:
        ValueError: command line or environment is not valid.
        ProcessLookupError: the replica has ended, or is told to.
        OSError: the system refuses another process.
    """
    content = start_instructions(command, env)
    with ExitStack() as stack:
        line, far_end = socketpair()
        control = Descriptor(line.detach())
        stack.callback(control.close)
        with ExitStack() as theirs:
            theirs.callback(far_end.close)
            shim = theirs.enter_context(replica.descriptor())
            program = os.memfd_create("program")
            theirs.callback(os.close, program)
            os.write(program, content)
            os.lseek(program, 0, os.SEEK_SET)
            if request.terminal is not None:
                own, given = _terminal(request.terminal, stack, theirs)
            else:
                own, given = _pipes(stack, theirs, has_input=request.has_input)
            if (account := command.account) is not None:
                _give(given, account.uid)
            words = ["terminal"] if request.terminal is not None else []
            supervisor_pid = _spawn([far_end.fileno(), shim, *given], program, words)
            _reap(supervisor_pid, replica)
            replica.add_command(supervisor_pid, partial(_tell_to_end, control))
        stdin, *outputs = own
        yield ExecSession(control, [each for each in outputs if each is not None], stdin)


def _terminal(
    size: TerminalSize, stack: ExitStack, theirs: ExitStack
) -> tuple[Sequence[Descriptor | None], Sequence[int]]:
    ours, slave = pty.openpty()
    theirs.callback(os.close, slave)
    terminal = Descriptor(ours)
    stack.callback(terminal.close)
    _set_size(ours, size)
    return (terminal, terminal), (slave, slave, slave)


def _pipes(
    stack: ExitStack, theirs: ExitStack, *, has_input: bool
) -> tuple[Sequence[Descriptor | None], Sequence[int]]:
    """Return the descriptors of standard input, output and error: our ends, and the command's."""
    given = [os.open(os.devnull, os.O_RDONLY)]
    own: list[Descriptor | None] = [None]
    if has_input:
        os.close(given.pop())
        read, write = os.pipe()
        given, own = [read], [Descriptor(write)]
    for _ in range(2):
        read, write = os.pipe()
        given.append(write)
        own.append(Descriptor(read))
    for number in given:
        theirs.callback(os.close, number)
    for each in own:
        if each is not None:
            stack.callback(each.close)
    return own, given


def _give(descriptors: Sequence[int], uid: int) -> None:
    """Let a user open what /dev/stdin, /dev/stderr and /dev/tty stand for: the pipes and the terminal made for the
    command, and nothing that is the machine's, as /dev/null.
    """
    for each in descriptors:
        if stat.S_ISFIFO(os.fstat(each).st_mode) or os.isatty(each):
            os.fchown(each, uid, -1)


def _set_size(terminal: int, size: TerminalSize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


def _spawn(given: Sequence[int], program: int, words: Sequence[str]) -> int:
    """Start a supervisor with these descriptors from CONTROL on, and return its pid."""
    numbers = [(0, program), *enumerate(given, start=supervisor.CONTROL)]
    with ExitStack() as stack:
        actions = []
        for number, each in numbers:
            high = fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _HIGH)
            stack.callback(os.close, high)
            actions.append((os.POSIX_SPAWN_DUP2, high, number))
        root = str(Path(voda.__file__).parent.parent)
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _RUN, root, *words],
            {},
            file_actions=actions,
            setsid=True,
            scheduler=SCHEDULER,
            setsigdef=RESET_SIGNALS,
        )


def _tell_to_end(control: Descriptor) -> None:
    if control.is_open:
        with suppress(OSError):
            os.write(control.number, b"\n")


def _reap(pid: int, replica: ReplicaProcess) -> None:
    """Wait for the end of a supervisor, whatever becomes of its command."""
    pidfd, loop = os.pidfd_open(pid), asyncio.get_running_loop()

    def reap() -> None:
        loop.remove_reader(pidfd)
        exit_status(pidfd)
        os.close(pidfd)
        replica.remove_command(pid)

    loop.add_reader(pidfd, reap)
