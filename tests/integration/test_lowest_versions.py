"""voda with the lowest versions of its dependencies that pyproject.toml allows: first without its extras, as
`pip install .` leaves it, then with them.
"""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.nats import NatsServer
from tests.ports import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
WAIT_S = 120.0
LOWEST = ("--quiet", "--resolution", "lowest-direct", "--only-binary", ":all:", "-r", str(ROOT / "pyproject.toml"))

KUBECONFIG = {
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "here",
}
LOAD = """
import asyncio, sys
from pathlib import Path
from voda.kubernetes_client.credentials import load_configuration
found = asyncio.run(load_configuration(Path(sys.argv[1])))
print(found.host, found.api_key["BearerToken"])
"""

pytestmark = pytest.mark.slow


class Installed:
    """voda in a venv of its own; each log that it serves has a home of its own."""

    def __init__(self, venv: Path) -> None:
        self.venv = venv
        self.home = venv.parent / "no-home"
        self.run(UV, "venv", "--quiet", "--python", sys.executable, venv)
        self.install("hatchling>=1.27", *LOWEST)
        self.install("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--editable", str(ROOT))

    def install(self, *words: str) -> None:
        self.run(UV, "pip", "install", "--python", self.venv / "bin" / "python", *words)

    def run(self, *words: object, status: int = 0) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == status, done.stdout
        return done.stdout

    def voda(self, *words: object, status: int = 0) -> str:
        return self.run(self.venv / "bin" / "voda", *words, status=status)

    @property
    def environment(self) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("VODA_")}  # noqa: TID251
        return {**inherited, "VODA_HOME": str(self.home)}

    @contextmanager
    def up(self, home: Path, *options: object) -> Iterator[str]:
        """Run `voda up` for the length of the block; yields its URL."""
        self.home, port = home, free_port()
        words = [self.venv / "bin" / "voda", "up", "--port", port, "--slots", 2, "--no-tokens", *options]
        served = subprocess.Popen([str(word) for word in words], env=self.environment)
        try:
            wait_until(lambda: (home / "server.json").exists() or served.poll() is not None)
            yield f"http://127.0.0.1:{port}"
        finally:
            served.terminate()
            assert served.wait(WAIT_S) == 0

    def trains(self, home: Path, *options: object) -> None:
        """Let one job run to its end by a `voda up`, and be seen by the API."""
        with self.up(home, *options) as url:
            assert "Completed" in self.voda("submit", "--watch", "--name", "job", "--", "sh", "-c", "echo done")
            assert "Completed" in self.voda("get", "--all")
            for path in ("/api/v1/jobs", "/metrics", "/openapi.json"):
                assert urllib.request.urlopen(url + path, timeout=WAIT_S).status == 200


def test_voda_runs_with_the_lowest_versions_without_and_with_its_extras(
    tmp_path: Path, nats_server: NatsServer, postgres_database: str
) -> None:
    voda = Installed(tmp_path / "venv")
    voda.trains(tmp_path / "sqlite")
    assert "elastic-fifo" in voda.voda("simulate", "--workload", "voda-exp/run_1")
    logs = (nats_server.url("lowest"), postgres_database)
    for log, extra in zip(logs, ("nats", "postgres"), strict=True):
        assert f"voda's extra {extra}" in voda.voda("log", "migrate", log, status=2)
    assert "voda's extra kubernetes" in voda.voda("serve", status=2)
    voda.install(*LOWEST, "--extra", "all")
    for log, name in zip(logs, ("nats", "postgres"), strict=True):
        voda.voda("log", "migrate", log)
        voda.trains(tmp_path / name, "--log", log)
    config = tmp_path / "kubeconfig"
    config.write_text(yaml.safe_dump(KUBECONFIG))
    assert voda.run(voda.venv / "bin" / "python", "-c", LOAD, config) == "https://127.0.0.1:6443 Bearer t\n"
