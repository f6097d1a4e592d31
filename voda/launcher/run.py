"""The loop of the launcher: turns hosts, exits and signals into events, and carries out what `step` answers.

Rule: this is the only place that waits; every decision is taken in `step`.
"""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, assert_never

from voda.domain.errors import ClusterUnavailable, InvalidInput
from voda.launcher import commands
from voda.launcher.hosts import Discovery, Layout
from voda.launcher.program import (
    LAST_LINES,
    ProgramNotFound,
    RunningProgram,
    check_mpirun,
    killing_orphans,
    new_tail,
    start,
    sweep,
)
from voda.launcher.state_machine import (
    DiscoveryFailed,
    EndSignalled,
    HostsListed,
    Kill,
    LauncherAction,
    LauncherEvent,
    LauncherState,
    Leave,
    ProgramExited,
    Rules,
    Say,
    Signal,
    Start,
    Tick,
    step,
)
from voda.programs.importable import package_files, with_package
from voda.programs.last_words import last_words

Starter = Literal["mpirun", "torchrun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """What to keep running."""

    program: Sequence[str]
    starter: Starter
    env: Mapping[str, str]
    """The launcher's own, which the program inherits."""
    is_local: Callable[[Layout], bool]
    """Whether all hosts of a layout are this machine."""


class Launcher:
    """Keeps one program running until it has done its work.

    Args:
        job: the program.
        discovery: finds the hosts.
        rules: what the user asked for.
        interval_s: between two runs of the discovery script.
        say: tells the user a sentence.
    """

    def __init__(
        self, job: LaunchSpec, *, discovery: Discovery, rules: Rules, interval_s: float, say: Callable[[str], None]
    ) -> None:
        self._job = job
        self._discovery = discovery
        self._rules = rules
        self._interval_s = interval_s
        self._say = say
        self._state = LauncherState()
        self._events: asyncio.Queue[LauncherEvent] = asyncio.Queue()
        self._running: RunningProgram | None = None
        self._tail = new_tail()
        self._starts = 0

    async def run(self) -> int:
        """Run until the program is done, has failed for good, or a signal came; return the exit code.

        Raises:
            ProgramNotFound: mpirun, torchrun or what torchrun is to start is not there, or mpirun is not Open MPI's.
            InvalidInput: torchrun cannot reach the hosts.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._events.put_nowait, EndSignalled())
        with tempfile.TemporaryDirectory(prefix="voda-run-", ignore_cleanup_errors=True) as folder:
            self._job = _with_package(self._job, Path(folder) / "python")
            try:
                async with killing_orphans(Path(folder)), asyncio.TaskGroup() as group:
                    watch = group.create_task(self._watch())
                    try:
                        return await self._work(Path(folder), group)
                    finally:
                        watch.cancel()
            except* InvalidInput as errors:
                raise errors.exceptions[0] from None
            finally:
                sweep(Path(folder))

    async def _work(self, folder: Path, group: asyncio.TaskGroup) -> int:
        loop = asyncio.get_running_loop()
        while True:
            event = await self._next(self._state.due - loop.time())
            self._state, actions = step(self._state, event, self._rules, loop.time())
            for action in actions:
                if isinstance(action, Leave):
                    return self._leave(action)
                await self._carry_out(action, folder, group)

    async def _next(self, timeout_s: float) -> LauncherEvent:
        try:
            async with asyncio.timeout(None if timeout_s == float("inf") else max(0.0, timeout_s)):
                return await self._events.get()
        except TimeoutError:
            return Tick()

    async def _carry_out(self, action: LauncherAction, folder: Path, group: asyncio.TaskGroup) -> None:
        match action:
            case Say(text):
                self._say(text)
            case Start(layout):
                await self._start(layout, folder, group)
            case Signal() if self._running:
                group.create_task(self._signal_end(self._running))
            case Kill() if self._running:
                group.create_task(self._running.kill())
            case Signal() | Kill() | Leave():
                pass
            case _:
                assert_never(action)

    async def _start(self, layout: Layout, folder: Path, group: asyncio.TaskGroup) -> None:
        # A fresh folder each time: what a killed mpirun left behind does not get in the way.
        self._starts += 1
        own = folder / str(self._starts)
        own.mkdir()
        (own / "hostfile").write_text(commands.hostfile_text(layout), "utf-8")
        if self._job.starter == "torchrun" and not self._job.is_local(layout):
            raise InvalidInput(
                f"torchrun starts processes on this machine only, and the hosts are {layout}; use --launcher mpirun,"
                " or a PyTorchJob, each of whose workers runs torchrun"
            )
        if (
            self._job.starter == "torchrun"
            and shutil.which(self._job.program[0], path=self._job.env.get("PATH")) is None
        ):
            # torchrun would end with 1, as for any failure.
            raise ProgramNotFound(f"{self._job.program[0]} is not found on this machine, or may not be executed")
        is_mpirun = self._job.starter == "mpirun"
        if is_mpirun and self._starts == 1:
            await check_mpirun(self._job.env)
        made = commands.mpirun if is_mpirun else partial(commands.torchrun, grace_s=self._rules.grace_s)
        self._tail = new_tail()
        command = made(self._job.program, layout, self._job.env, folder=own)
        self._running = await start(command, folder=own, tail=self._tail)
        group.create_task(self._await_end(self._running))

    async def _await_end(self, running: RunningProgram) -> None:
        code = await running.wait()
        if running is self._running:
            self._running = None
        self._events.put_nowait(ProgramExited(code))

    async def _signal_end(self, running: RunningProgram) -> None:
        is_mpirun = self._job.starter == "mpirun"
        # torchrun passes SIGTERM on by itself, and would break off its own end at the second one.
        await running.signal_end(signal.SIGUSR2 if is_mpirun else signal.SIGTERM, again=is_mpirun)

    async def _watch(self) -> None:
        while True:
            try:
                self._events.put_nowait(HostsListed(await self._discovery.list_hosts()))
            except (ClusterUnavailable, InvalidInput) as error:
                self._events.put_nowait(DiscoveryFailed(str(error)))
            await asyncio.sleep(self._interval_s)

    def _leave(self, action: Leave) -> int:
        if action.text:
            self._say(action.text)
        if action.shows_output and (lines := last_words(self._tail.text()).lines[-LAST_LINES:]):
            self._say("its last lines:\n" + "\n".join(f"  | {line}" for line in lines))
        return action.code


def _with_package(job: LaunchSpec, folder: Path) -> LaunchSpec:
    """Return the job with what its program can import of voda, in a folder."""
    for path, content in package_files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return replace(job, env=with_package(job.env, folder))
