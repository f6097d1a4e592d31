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

from msgspec import Struct

from voda import config

_START_S = 60.0


class Served(Struct, frozen=True, kw_only=True):
    """A running service."""

    url: str
    home: Path
    pid: int
    token: str

    @property
    def headers(self) -> Mapping[str, str]:
        """What a request of the admin carries."""
        return {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str) -> Any:
        """Return what GET answers, decoded."""
        with urllib.request.urlopen(
            urllib.request.Request(self.url + path, headers=dict(self.headers)), timeout=30
        ) as got:
            return json.load(got)


@contextmanager
def serving(*options: str) -> Iterator[Served]:
    """Run `voda up` with these options for the length of the block; its jobs are halted at the end."""
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
        home = Path(folder)
        binaries = Path(sys.executable).parent
        inherited = config.environment()
        env = {**inherited, "VODA_HOME": folder, "PATH": f"{binaries}{os.pathsep}{inherited.get('PATH', '')}"}
        command = [str(binaries / "voda"), "up", "--port", "0", "--halt-on-exit", *options]
        with (home / "up.log").open("wb") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            yield _started(process, home)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=90)


def _started(process: "subprocess.Popen[bytes]", home: Path) -> Served:
    deadline = time.perf_counter() + _START_S
    while time.perf_counter() < deadline and process.poll() is None:
        if (home / "server.json").exists():
            url = json.loads((home / "server.json").read_text())["url"]
            served = Served(url=url, home=home, pid=process.pid, token=(home / "admin.token").read_text().strip())
            try:
                served_ready = urllib.request.urlopen(f"{url}/readyz", timeout=5)
            except OSError:
                time.sleep(0.05)
                continue
            served_ready.close()
            return served
        time.sleep(0.05)
    raise RuntimeError(f"voda up did not start; it said:\n{(home / 'up.log').read_text()}")


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
