"""A `voda up` to be measured: a process of its own in a folder of its own, and what its clients need."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from voda import config

_START_S = 60.0


class Served:
    """A running service."""

    def __init__(self, home: Path, process: "subprocess.Popen[bytes]") -> None:
        self.home = home
        self.process = process
        self.url = json.loads((home / "server.json").read_text())["url"]
        self.token = (home / "admin.token").read_text().strip()

    @property
    def pid(self) -> int:
        """Of the service's main process."""
        return self.process.pid

    @property
    def headers(self) -> Mapping[str, str]:
        """What a request of the admin carries."""
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Return what is answered, decoded.

        Raises:
            HTTPError: the answer is no success.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {**self.headers, **headers}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            said = answer.read()
        return json.loads(said) if said.startswith((b"{", b"[")) else said

    def get(self, path: str) -> Any:
        """Return what GET answers, decoded."""
        return self.ask("GET", path)

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.kill()
        self.process.wait(timeout=30)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=90)


def start(home: Path, *options: str, variables: Mapping[str, str] | None = None) -> Served:
    """Run `voda up` on a folder, and return once it is ready.

    Raises:
        RuntimeError: it ended, or is not ready in time; with what it said.
    """
    deadline = time.perf_counter() + _START_S
    (home / "server.json").unlink(missing_ok=True)
    with (home / "up.log").open("ab") as log:
        process = subprocess.Popen(
            command("up", *options), env={**environment(home), **(variables or {})}, stdout=log, stderr=log
        )
    while time.perf_counter() < deadline and process.poll() is None:
        time.sleep(0.02)
        if (home / "server.json").exists() and _is_ready(served := Served(home, process)):
            return served
    process.kill()
    raise RuntimeError(f"voda up did not start; it said:\n{(home / 'up.log').read_text()}")


def command(*arguments: str) -> list[str]:
    """Return the command line of the voda beside this interpreter."""
    return [str(Path(sys.executable).with_name("voda")), *arguments]


def environment(home: Path) -> Mapping[str, str]:
    """Return the environment in which the voda of this folder is found, with its programs on the path."""
    inherited = dict(config.environment())
    for name in ("VODA_SERVER", "VODA_TOKEN"):
        inherited.pop(name, None)
    path = f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}"
    return {**inherited, "VODA_HOME": str(home), "PATH": path}


def _is_ready(served: Served) -> bool:
    try:
        urllib.request.urlopen(f"{served.url}/readyz", timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def serving(*options: str) -> Iterator[Served]:
    """Run `voda up` in a new folder for the length of the block; its jobs are halted at the end."""
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
        served = start(Path(folder), "--port", "0", "--halt-on-exit", *options)
        try:
            yield served
        finally:
            served.stop()


def manifest(name: str, script: str, *, least: int = 1, most: int = 1) -> dict[str, Any]:
    """Return an MPIJob whose launcher runs a shell script."""
    container = {"name": "main", "image": "none", "command": ["/bin/sh", "-c", script]}
    worker = {"replicas": least, "template": {"spec": {"containers": [{"name": "main", "image": "none"}]}}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {
            "name": name,
            "annotations": {"voda.dev/min-replicas": str(least), "voda.dev/max-replicas": str(most)},
        },
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
                "Worker": worker,
            }
        },
    }


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds, of what it shares its part (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} shows no memory")
