"""What every adapter of the RemoteCommands port promises; a bench gives it a job `a` with one replica that runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import pytest

from tests.waiting import DEADLINE_S
from voda.cluster.port import CommandEnd, CommandRequest, RemoteCommand, RemoteCommands, TerminalSize
from voda.domain.errors import WrongState

JOB = "a"
_SIZES = """
while [ "$(stty size)" = "0 0" ]; do sleep 0.05; done; stty size; read line
while [ "$(stty size)" = "30 100" ]; do sleep 0.05; done; stty size; echo err >&2
"""
"""It waits, for a kubelet tells a terminal its size beside the input, and the first one once the command has begun."""


class CommandBench(Protocol):
    """One job that runs on a cluster."""

    commands: RemoteCommands

    async def end_replica(self) -> None:
        """Let the job's replica end."""


async def printed(command: RemoteCommand) -> tuple[bytes, bytes, CommandEnd]:
    """Return all that a command prints, to standard output and error, and how it ends."""
    out, errors = b"", b""
    async with asyncio.timeout(DEADLINE_S):
        while not isinstance(got := await command.read(), CommandEnd):
            out, errors = (out, errors + got.data) if got.is_error else (out + got.data, errors)
    return out, errors, got


async def until_printed(command: RemoteCommand, text: bytes) -> None:
    """Read until a command has printed something."""
    found = b""
    async with asyncio.timeout(DEADLINE_S):
        while text not in found:
            got = await command.read()
            assert not isinstance(got, CommandEnd), (got, found)
            found += got.data


class RemoteCommandClaims:
    """The claims; a subclass makes the bench."""

    async def run(self, bench: CommandBench, *argv: str) -> tuple[bytes, bytes, CommandEnd]:
        """Return what a command without input prints, and how it ends."""
        async with self.running(bench, CommandRequest(argv=argv)) as command:
            return await printed(command)

    @asynccontextmanager
    async def running(self, bench: CommandBench, request: CommandRequest) -> AsyncIterator[RemoteCommand]:
        """Run a command beside the job's replica for the length of the block."""
        [replica] = await bench.commands.replicas(JOB)
        async with bench.commands.run(JOB, replica, request) as command:
            yield command

    async def test_output_and_errors_stay_apart_and_the_status_is_told(self, bench: CommandBench) -> None:
        script = "echo out; echo err >&2; exit 3"
        assert await self.run(bench, "sh", "-c", script) == (b"out\n", b"err\n", CommandEnd(3))

    async def test_input_reaches_the_command_and_its_end_too(self, bench: CommandBench) -> None:
        async with self.running(bench, CommandRequest(argv=("wc", "-c"), has_input=True)) as command:
            for _ in range(20):
                await command.write(b"x" * 10_000)
            await command.end_input()
            out, _, end = await printed(command)
        assert (int(out), end) == (200_000, CommandEnd(0))

    async def test_without_input_the_command_reads_an_end_at_once(self, bench: CommandBench) -> None:
        assert await self.run(bench, "cat") == (b"", b"", CommandEnd(0))

    async def test_command_that_is_not_there_is_told_so_with_127(self, bench: CommandBench) -> None:
        out, errors, end = await self.run(bench, "no-such-program")
        assert (out, errors, end.status) == (b"", b"", 127)
        assert "no-such-program" in end.problem

    async def test_large_output_arrives_whole(self, bench: CommandBench) -> None:
        out, _, end = await self.run(bench, "head", "-c", "3000000", "/dev/zero")
        assert (len(out), end) == (3_000_000, CommandEnd(0))

    async def test_terminal_has_its_size_and_one_output(self, bench: CommandBench) -> None:
        request = CommandRequest(
            argv=("sh", "-c", _SIZES),
            has_input=True,
            terminal=TerminalSize(columns=100, rows=30),
        )
        async with self.running(bench, request) as command:
            await until_printed(command, b"30 100")
            await command.resize(TerminalSize(columns=120, rows=40))
            await command.write(b"\n")
            out, errors, end = await printed(command)
        assert b"40 120" in out
        assert b"err" in out
        assert (errors, end) == (b"", CommandEnd(0))

    async def test_command_ends_with_its_replica(self, bench: CommandBench) -> None:
        async with self.running(bench, CommandRequest(argv=("sh", "-c", "echo began; sleep 1000"))) as command:
            await until_printed(command, b"began")
            await bench.end_replica()
            _, _, end = await printed(command)
        assert end.status != 0

    async def test_replicas_are_those_that_run_and_no_command_runs_beside_another(self, bench: CommandBench) -> None:
        assert len(await bench.commands.replicas(JOB)) == 1
        assert await bench.commands.replicas("no-such-job") in ((), [])
        with pytest.raises(WrongState):
            async with bench.commands.run(JOB, "worker-7", CommandRequest(argv=("true",))):
                pass
