"""voda is killed and started again, while a stranger has its TCP port and the clock is a year ahead, or a year behind.

Rule: the kernel's clock is left alone: libfaketime shows voda another time of day.
"""

import glob
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.served import command, environment, manifest
from tests.accounts import as_account
from tests.hostile.people import HONEST, HOSTILE, Person, Place, UnixConnection, ask
from voda import config

_LIBRARY: Final = "/usr/lib/*/faketime/libfaketimeMT.so.1"
_DAYS: Final = {365: "ahead of", -365: "behind"}
_TOKENS: Final = (b"voda_", b"vjob_", b"Bearer")
_READY_S: Final = 180.0
_RETENTION_S: Final = 180.0
"""It looks half a minute after the start."""
_COMMAND_S: Final = 60.0
_POLL_S: Final = 0.1
_JOB: Final = 'echo "$VODA_API_URL"; echo "$VODA_JOB_TOKEN"; sleep 1000'


def restarted(home: Path, place: Place, slots: int, heard: Path) -> Iterator[str]:
    """Start voda again and again on the folder of one that has ended; yield what goes wrong, one sentence each.

    `heard` is a file for what whoever takes the port is sent.
    """
    if not (libraries := glob.glob(_LIBRARY)):
        if config.environment().get("CI"):
            yield "libfaketime is not there: python3 tools/bootstrap.py --faketime"
        return
    # The steady clock is as it is, and so are the times of files.
    shown = {"LD_PRELOAD": libraries[0], "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
    voda = _Voda(home, place, ("--port", str(place.port), "--slots", str(slots), "--ratelimit", "0"))
    try:
        yield from voda.start({})
        job_id = _as_honest(lambda: ask(place, "POST", "/jobs", manifest("through", _JOB))[1]["job"]["job_id"])
        if not _wait(lambda: len(_printed(place, job_id)) > 1, _READY_S):
            yield f"job {job_id} prints nothing"
            return
        token = _printed(place, job_id)[1]
        voda.kill()
        stranger = Person(HOSTILE, heard, partial(_take_port, place.port))
        try:
            _wait(lambda: _is_taken(place.port), _READY_S)
            if "cannot be reached" not in (said := voda.command("whoami")):
                yield f"a command of root took another for voda, and said: {said}"
            for days in _DAYS:
                yield from voda.start({**shown, "FAKETIME": f"{days:+d}d"})
                yield from _broken(voda, place, job_id, token, days)
                voda.kill()
            yield from voda.start({})
        finally:
            stranger.end()
            stranger.wait()
        if sent := [word.decode() for word in _TOKENS if word in heard.read_bytes()]:
            yield f"whoever had the port was sent {', '.join(sent)}: {heard}"
        if not _wait(lambda: _is_taken(place.port), _READY_S):
            yield "voda did not take its port once it was free"
        _as_honest(lambda: ask(place, "DELETE", f"/jobs/@{job_id}"))
        if not _wait(lambda: _job(place, job_id)["phase"] == "Canceled", _READY_S):
            yield f"job {job_id} is {_job(place, job_id)['phase']} after a cancellation"
    finally:
        voda.stop()


class _Voda:
    """A voda that others may not find at its port."""

    def __init__(self, home: Path, place: Place, options: tuple[str, ...]) -> None:
        self.log = home / "up.log"
        self._home = home
        self._place = place
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, variables: Mapping[str, str]) -> Iterator[str]:
        """Start it, and yield why it is not ready in time."""
        with self.log.open("ab") as log:
            variables = {**environment(self._home), **variables}
            self._process = subprocess.Popen(command("up", *self._options), env=variables, stdout=log, stderr=log)
        if not _wait(lambda: self.readiness().startswith("ready"), _READY_S):
            yield f"voda is not ready at its socket after {_READY_S:g} s: {self.readiness()}"

    def readiness(self) -> str:
        """Return what it answers by itself; empty where it does not."""
        connection = UnixConnection(self._place.socket)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().read().decode()
        except OSError:
            return ""
        finally:
            connection.close()

    def command(self, *words: str) -> str:
        """Return all that a command of root says."""
        done = subprocess.run(
            command(*words),
            env=environment(self._home),
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        return done.stdout + done.stderr

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=_COMMAND_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=_COMMAND_S)


def _broken(voda: _Voda, place: Place, job_id: str, token: str, days: int) -> Iterator[str]:
    """Yield what a voda whose port is taken and whose clock is wrong does not keep."""
    wrong = f"365d {_DAYS[days]} what log and uptime account for"
    for what, said in (("readyz", voda.readiness()), ("voda whoami", voda.command("whoami"))):
        if wrong not in said:
            yield f"{what} with a clock that is {days} days ahead, expected {wrong!r}, got {said!r}"
    waits = f"retention waits: the clock is {wrong}"
    if days > 0 and not _wait(lambda: waits in voda.log.read_text(errors="replace"), _RETENTION_S):
        yield "retention does not wait until the clock is confirmed"
    listed = _as_honest(lambda: ask(place, "GET", f"/jobs?user={HONEST}&limit=500")[1]["items"])
    for job in listed:
        if _as_honest(lambda: ask(place, "GET", f"/jobs/@{job['job_id']}/logs")[0]) != 200:  # noqa: B023 - asked at once
            yield f"the output of job {job['job_id']} is gone with a clock that is {days} days ahead"
    status = _as_honest(lambda: ask(place, "POST", f"/jobs/@{job_id}/progress", {"epoch": abs(days)}, token=token)[0])
    if status != 204 or _job(place, job_id)["phase"] != "Running":
        yield f"job {job_id} is {_job(place, job_id)['phase']}, and its report was answered with {status}"
    if not (url := _printed(place, job_id)[0]).startswith("unix://"):
        yield f"job {job_id} was told to report to {url}"


def _take_port(port: int) -> None:
    """Listen where voda did, and write down what is sent."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                listener.bind(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(_POLL_S)
        listener.listen()
        while True:
            with listener.accept()[0] as one:
                one.settimeout(_COMMAND_S)
                os.write(1, one.recv(100_000))
                one.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")


def _is_taken(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _job(place: Place, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = _as_honest(lambda: ask(place, "GET", f"/jobs/@{job_id}")[1])
    return found


def _printed(place: Place, job_id: str) -> list[str]:
    """Return the lines that a job of the honest user has printed."""
    status, said = _as_honest(lambda: ask(place, "GET", f"/jobs/@{job_id}/logs"))
    return str(said).splitlines() if status == 200 else []


def _as_honest(act: Callable[[], object]) -> Any:
    return json.loads(as_account(HONEST, lambda: json.dumps(act())))


def _wait(holds: Callable[[], bool], limit_s: float) -> bool:
    """Return whether it holds within a time."""
    deadline = time.perf_counter() + limit_s
    while not holds():
        if time.perf_counter() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
