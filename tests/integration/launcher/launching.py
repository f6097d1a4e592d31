"""Starts `voda run` as a user would, with a list of hosts that a test can change."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until

_WAIT_S = 240.0
"""Programs train meanwhile, and their frameworks wait for each other."""

PROGRAM = """
import os, signal, sys, time
from mpi4py import MPI

world, told = MPI.COMM_WORLD, []
note = lambda text: open(sys.argv[1], "a").write(f"{text} {world.rank}/{world.size}\\n")
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
world.Barrier()
note("up")
while not told and not os.path.exists(sys.argv[1] + ".done"):
    time.sleep(0.02)
if told:
    # Ranks need different times, and end without MPI_Finalize: mpirun must not kill the slow one for it.
    time.sleep(0.1 + world.rank)
    note("saved")
    os._exit(0)
note("done")
"""


class Run:
    """A running `voda run`."""

    def __init__(self, folder: Path, program: list[str], *options: str, env: dict[str, str] | None = None) -> None:
        self.hosts, self.notes = folder / "hosts", folder / "notes"
        self.out, self.err = folder / "out", folder / "err"
        script = folder / "hosts.sh"
        script.write_text(f"#!/bin/sh\ncat {self.hosts}\n")
        script.chmod(0o755)
        bin_folder = Path(sys.executable).parent
        voda = [sys.executable, "-c", "from voda.cli import main; main()"]
        words = [*voda, "run", "--host-discovery-script", str(script), *options, "--", *program]
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("VODA_")}  # noqa: TID251
        path = f"{bin_folder}:{inherited['PATH']}"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                words,
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**inherited, "PATH": path, "TMPDIR": str(folder), **(env or {})},
                start_new_session=True,
            )

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def list_hosts(self, text: str) -> None:
        """Change the list, as a whole."""
        list_hosts(self.hosts, text)

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(_WAIT_S)

    def noted(self) -> list[str]:
        """Return the lines that the program wrote down."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def until(self, *notes: str) -> None:
        """Wait until the program has written down all of these."""
        wait_until(
            lambda: set(notes) <= set(self.noted()),
            lambda: f"{notes} in {self.noted()}\n{self.err.read_text()}",
            within_s=_WAIT_S,
        )


def list_hosts(file: Path, text: str) -> None:
    """Write a list of hosts, as a whole."""
    draft = file.with_suffix(".new")
    draft.write_text(text)
    draft.replace(file)


def processes_with(text: str) -> list[int]:
    """Return the processes whose command line or environment holds a text, the caller's own excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                both = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if text.encode() in both:
                found.append(int(entry.name))
    return found
