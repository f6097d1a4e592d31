"""`voda serve` as a process of its own, as a Deployment's pod would run it.

Rule: whatever becomes of the figure, the process ends with it.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from benchmarks.served import resident_bytes
from tests.kube.control_plane import ControlPlane
from tests.served_process import PROGRAM, ServedProcess

_START_S = 120.0


class Replica(ServedProcess):
    """One process; it leads as soon as nobody else does.

    Args:
        plane: whose API server.
        folder: of this replica alone.
        log: a path or URL.
        settings: fields of the settings file beside the usual ones.
        program: what is run instead of voda; gets the same arguments.
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        log: str,
        *,
        settings: Mapping[str, Any] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "said").unlink(missing_ok=True)
        fields = {
            "log": log,
            "home": str(folder),
            "listen": {"host": "127.0.0.1", "port": 0},
            "cluster": {"defaultPool": ""},
            "leader": {"namespace": "default"},
            "pools": {"v100": {"ratelimitSeconds": 0.0}},
            **(settings or {}),
        }
        path = folder / "voda.yaml"
        path.write_text(yaml.safe_dump(fields))
        arguments = ("serve", "--config", str(path), "--no-tokens", "--verbose", "--kubeconfig")
        self._is_profiled = "benchmarks.kube.profiled" in program
        super().__init__(folder / "said", [*arguments, str(plane.kubeconfig())], program=program)

    async def until_leads(self) -> None:
        """Wait until it leads a pool."""
        await self.until("leads pool=")

    async def until(self, word: str) -> None:
        """Wait until it has said something.

        Raises:
            RuntimeError: it ended, or does not say it in time.
        """
        deadline = time.perf_counter() + _START_S
        while word not in self.text:
            if self.process.poll() is not None or time.perf_counter() > deadline:
                raise RuntimeError(f"waited for voda serve to say {word!r}; it said:\n{self.text[-4000:]}")
            await asyncio.sleep(0.02)

    def measure(self) -> None:
        """Let its profile begin now, if it is profiled: what it did to start is not measured."""
        if self._is_profiled:
            self.process.send_signal(signal.SIGUSR1)

    def pids(self) -> Sequence[int]:
        """Return its processes: itself, and those it has started."""
        if self.process.poll() is not None:
            return ()
        return (self.process.pid, *_children(self.process.pid))

    def held_bytes(self) -> tuple[int, int]:
        """Return the memory that it holds: the main process, and those it has started."""
        first, *others = [_held(pid) for pid in self.pids()]
        return first, sum(others)

    def kill(self) -> None:
        """End it as a crash would, and what it has started too."""
        for pid in reversed(self.pids()):
            _kill(pid)
        self.process.wait(30.0)

    def stop(self) -> None:
        """Tell it to end, and wait; kill it where it does not."""
        if self.process.poll() is None:
            self.terminate()
            try:
                self.process.wait(20.0)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def serving(plane: ControlPlane, folder: Path, log: str, **options: Any) -> Iterator[Replica]:
    """Run a replica for the length of the block; see Replica."""
    replica = Replica(plane, folder, log, **options)
    try:
        yield replica
    finally:
        replica.stop()


def _children(pid: int) -> Sequence[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return ()


def _held(pid: int) -> int:
    try:
        return resident_bytes(pid)
    except (FileNotFoundError, ProcessLookupError, RuntimeError):
        # A process that forecasts ends when it has nothing to do.
        return 0


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
