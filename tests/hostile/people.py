"""Processes of other users of this machine, and how they ask voda.

Rule: a process is forked and gives up all rights before it does anything, so that it needs no program of its own.
"""

import http.client
import json
import os
import pwd
import signal
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec import Struct

from voda.domain.rng import rng_at

HONEST: Final = "daemon"
HOSTILE: Final = "nobody"
_ANSWER_S: Final = 60.0
_TOKEN: Final = "vjob_"


class Place(Struct, frozen=True, kw_only=True):
    """Where voda is asked, and until when."""

    socket: Path
    port: int
    seed: int
    until: float
    """By the clock of `time.perf_counter`."""

    def is_open(self) -> bool:
        return time.perf_counter() < self.until

    def chance(self, name: str) -> Random:
        return rng_at(self.seed, name)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Connect, and wait where others fill the backlog."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))
        self.sock.settimeout(_ANSWER_S)


def ask(place: Place, method: str, path: str, body: object = None, *, token: str = "") -> tuple[int, Any]:
    """Return status and decoded body of one answer."""
    connection = UnixConnection(place.socket)
    content = None if body is None else json.dumps(body)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request(method, f"/api/v1{path}", content, headers)
        answer = connection.getresponse()
        said = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(said) if said.startswith((b"{", b"[")) else said.decode(errors="replace")


def token_of(place: Place, job_id: str) -> str:
    """Return the token of a job that prints it; empty where it has not, or has ended."""
    while place.is_open():
        status, said = ask(place, "GET", f"/jobs/@{job_id}/logs")
        if status == 200 and _TOKEN in said:
            return str(said[said.index(_TOKEN) :].split()[0])
        if ask(place, "GET", f"/jobs/@{job_id}")[1].get("phase") in ("Completed", "Failed", "Canceled"):
            return ""
        time.sleep(0.2)
    return ""


class Person:
    """A process of an account that does something until it has done it, or is ended."""

    def __init__(self, account: str, said: Path, do: Callable[[], None], *, nice: int = 0) -> None:
        entry = pwd.getpwnam(account)
        groups = os.getgrouplist(account, entry.pw_gid)
        with said.open("ab") as log:
            self.pid = os.fork()
            if self.pid == 0:
                os.nice(nice)
                _live(entry, groups, log.fileno(), do)

    def has_ended(self) -> bool:
        return bool(os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Return how it ended: 0, or what os.waitstatus_to_exitcode says."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _live(entry: pwd.struct_passwd, groups: list[int], said: int, do: Callable[[], None]) -> None:
    status = 1
    try:
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.setgroups(groups)
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
        do()
        status = 0
    except BaseException:  # the file of what it said has it
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)
