"""`voda up` on a log that was damaged before its last snapshot: it starts, and says so in a while."""

import json
import re
import sqlite3
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.served import manifest, start
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@contextmanager
def _up(home: Path) -> Iterator[str]:
    service = start(home, "--port", "0", "--slots", "1")
    try:
        yield service.url
    finally:
        service.stop()


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The data folder of a voda that has ended, with a snapshot behind an event that was changed."""
    home = tmp_path / "home"
    home.mkdir()
    service = start(home, "--port", "0", "--slots", "1", "--halt-on-exit")
    service.ask("POST", "/api/v1/jobs", manifest("first", "true"))
    # A start reads the last event, whatever it is.
    wait_until(lambda: "job.completed" in json.dumps(service.get("/api/v1/events?limit=100")))
    service.stop()
    with sqlite3.connect(home / "voda.db") as connection:
        assert connection.execute("SELECT count(*) FROM snapshots").fetchone()[0] == 2
        # What a leader reads of former leaderships is not it.
        damage = "UPDATE events SET body = replace(body, 'actor', 'bctor') WHERE type = 'job.submitted'"
        assert connection.execute(damage).rowcount == 1
    connection.close()
    return home


def test_log_when_damaged_before_its_snapshot_is_told_of_by_readiness_metric_and_output(damaged: Path) -> None:
    said = damaged / "up.log"
    with _up(damaged) as url:
        warning = "ready\nwarning: the log is damaged at position "
        wait_until(lambda: _get(f"{url}/readyz").startswith(warning), said.read_text, within_s=60)
        assert "\nvoda_log_damaged 1.0\n" in _get(f"{url}/metrics")
    assert re.search(r"log damaged position=\d+ reason=position \d+: the checksum does not fit", said.read_text())


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())
    except OSError as error:
        return str(error)
