"""`voda up` with a certificate of the user's own making: the command line and the jobs trust it without being told."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.served import command, environment, manifest
from tests.certificates import a_certificate

pytestmark = pytest.mark.slow

WAIT_S = 120.0


def voda(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        command(*arguments), env=environment(home), capture_output=True, text=True, timeout=WAIT_S, check=False
    )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The data folder of a voda that speaks TLS with a certificate for the network's name of this machine."""
    cert, key = a_certificate(tmp_path, "DNS:login-1.example")
    home = tmp_path / "home"
    options = ["--port", "0", "--slots", "1", "--ratelimit", "0", "--halt-on-exit"]
    with (tmp_path / "up.log").open("wb") as log:
        words = command("up", *options, "--tls-cert", str(cert), "--tls-key", str(key))
        process = subprocess.Popen(words, env=environment(home), stdout=log, stderr=log)
    try:
        deadline = time.perf_counter() + WAIT_S
        while not (home / "server.json").exists():
            assert process.poll() is None, (tmp_path / "up.log").read_text()
            assert time.perf_counter() < deadline, (tmp_path / "up.log").read_text()
            time.sleep(0.05)
        yield home
    finally:
        process.terminate()
        process.wait(timeout=90)


def test_job_when_the_server_has_a_certificate_of_its_own_reports_and_is_seen(home: Path, tmp_path: Path) -> None:
    reporting = f"{sys.executable} -c 'from voda.report import report; report(epoch=4, metrics=dict(accuracy=0.5))'"
    (tmp_path / "job.json").write_text(json.dumps(manifest("secure", reporting)))
    submitted = voda(home, "submit", str(tmp_path / "job.json"), "--watch")
    assert submitted.returncode == 0, submitted.stderr
    job = json.loads(voda(home, "get", "secure", "-o", "json").stdout)
    assert job["progress"]["epochs_done"] == 4


def test_output_when_followed_is_seen_to_its_end(home: Path, tmp_path: Path) -> None:
    # Longer than what one read of the connection takes, and then a pause.
    prints = "seq 1 20000; for part in 1 2 3; do sleep 0.3; echo part $part; done"
    (tmp_path / "job.json").write_text(json.dumps(manifest("talks", prints)))
    assert voda(home, "submit", str(tmp_path / "job.json")).returncode == 0
    for options in ((), ("--all-replicas",)):
        followed = voda(home, "logs", "talks", "-f", *options)
        assert followed.returncode == 0, followed.stderr
        lines = [line.removeprefix("[launcher] ") for line in followed.stdout.splitlines()]
        assert lines == [*map(str, range(1, 20_001)), "part 1", "part 2", "part 3"]


def test_certificate_when_nobody_vouches_for_it_is_refused_until_named(home: Path, tmp_path: Path) -> None:
    url = json.loads((home / "server.json").read_text())["url"]
    token = (home / "admin.token").read_text().strip()
    asked = ("get", "--server", url, "--token", token, "--home", str(tmp_path / "nobody"))
    refused = voda(home, *asked)
    assert refused.returncode == 2
    assert "name the certificate to trust with --ca or VODA_CA" in refused.stderr
    assert voda(home, *asked, "--ca", str(tmp_path / "cert.pem")).returncode == 0
