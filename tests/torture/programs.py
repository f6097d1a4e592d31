"""The programs of a torture: voda, clients, and voda's commands; how each is started and got rid of.

Rule: nothing that was started here outlives the torture, jobs included.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.ports import free_port
from tests.torture.client import Settings
from tests.torture.process import Voda
from voda import config
from voda.auth.tokens import Authenticator
from voda.clock import SystemClock

_COMMAND_S = 300.0
_SLOTS = 6
_USERS = 6
_CLIENT_PROCESSES = 2
_SAID_BYTES = 2_000


def voda() -> str:
    """Return the path of the voda beside this interpreter."""
    return str(Path(sys.executable).with_name("voda"))


def run_voda(*words: str) -> None:
    """Run a command of voda to its end.

    Raises:
        RuntimeError: it failed; with what it said.
    """
    done = subprocess.run([voda(), *words], capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"voda {' '.join(words[:2])} failed: {done.stderr.strip() or done.stdout.strip()}")


def environment(home: Path) -> Mapping[str, str]:
    """Return the environment of a voda of this folder."""
    inherited = {name: value for name, value in config.environment().items() if not name.startswith("VODA_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}"
    return {**inherited, "VODA_HOME": str(home), "PATH": path}


def voda_up(folder: Path, log: str) -> Voda:
    """Return a voda that is not started yet.

    Args:
        folder: of the torture, with `home` and `said` in it.
        log: URL; empty = the file in its home.
    """
    home, port = folder / "home", free_port()
    home.chmod(0o700)
    Authenticator.open(home, SystemClock())
    words = [voda(), "up", "--single-user", "--slots", str(_SLOTS), "--port", str(port), "--verbose"]
    words += ["--log", log] if log else []
    return Voda(f"http://127.0.0.1:{port}", words, environment(home), folder / "said" / "voda")


def admin_token(folder: Path) -> str:
    """Return the token of the admin of the torture's home."""
    return (folder / "home" / "admin.token").read_text().strip()


class Clients:
    """The processes of the clients."""

    def __init__(self, folder: Path, url: str, *, seed: int) -> None:
        self._folder = folder
        access = Authenticator.open(folder / "home", SystemClock())
        tokens = {name: access.add(name, "user") for name in (f"user-{number}" for number in range(_USERS))}
        self._processes = []
        for number in range(_CLIENT_PROCESSES):
            settings = Settings(
                url=url,
                tokens=dict(list(tokens.items())[number::_CLIENT_PROCESSES]),
                journals=str(folder / "journals"),
                seed=seed,
            )
            self._processes.append(self._started(number, settings))

    def end(self, within_s: float) -> None:
        """Have them find out what they do not know yet, and end.

        Raises:
            RuntimeError: one broke; with what it said.
        """
        for process in self._processes:
            process.terminate()
        for number, process in enumerate(self._processes):
            if process.wait(within_s) != 0:
                raise RuntimeError(f"the clients broke: {self._said(number).read_text()[-_SAID_BYTES:]}")

    def kill(self) -> None:
        """End them at once."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _started(self, number: int, settings: Settings) -> "subprocess.Popen[bytes]":
        told = self._folder / f"clients-{number}.json"
        told.touch(mode=0o600)
        told.write_bytes(msgspec.json.encode(settings))
        words = [sys.executable, "-m", "tests.torture.client", str(told)]
        with self._said(number).open("ab") as said:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def _said(self, number: int) -> Path:
        return self._folder / "said" / f"clients-{number}"


def kill_jobs(home: Path) -> None:
    """Kill every process of a job of this home."""
    mark = f"VODA_REPLICA={home.resolve()}/".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
