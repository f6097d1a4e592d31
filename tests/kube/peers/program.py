"""A peer as a process: started on a control plane, stopped, killed, held still, and started again.

Rule: its log and files lie in a folder of its own within the control plane's, and it ends with whoever started it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kube.control_plane import UNHURRIED_GC, ControlPlane

APART = (sys.executable, Path(__file__).with_name("apart.py"))
"""What runs a program that insists on a port or a folder; see there."""
_END_S = 30.0


class Program:
    """See the module.

    Args:
        plane: whose API server it speaks to.
        name: of the binary, and of its folder.
    """

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane = plane
        self.name = name
        self.folder = plane.folder / name
        self.folder.mkdir(exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0

    def run(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        """Start it."""
        assert self._process is None, f"{self.name} runs already"
        self._started_at = time.time()  # noqa: TID251 - compared with a file's time
        # One that watches where it runs, as training-operator may do after its certificate was replaced, must not find
        # its log there: it would log each line that it logs, on a core of its own.
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        with (self.folder / "log").open("ab") as said:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=home,
                # What runs it apart is held still and killed with it.
                start_new_session=True,
                env={**UNHURRIED_GC, **(environment or {})},
            )

    @property
    def log(self) -> str:
        """What it said so far."""
        return (self.folder / "log").read_text(errors="replace")

    def quiet_s(self) -> float:
        """Return for how many seconds it has said nothing and was not started; 0 where it does not run."""
        if self._process is None or self.is_over():
            return 0.0
        return time.time() - max((self.folder / "log").stat().st_mtime, self._started_at)  # noqa: TID251 - a file's time

    def is_over(self) -> bool:
        """Say whether it was started, and has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def check(self) -> None:
        """Fail if it has ended."""
        assert not self.is_over(), f"{self.name} ended: {self.log[-3000:]}"

    def crash(self) -> None:
        """End it as a crash would."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_END_S)

    def start_again(self) -> None:
        """Start it after it has ended."""
        self._process = None
        self.start()

    def start(self) -> None:
        """Start it."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it as its Deployment would."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self.crash()
            self._process = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let it stand still for as long as the block lasts."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)
