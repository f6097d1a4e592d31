"""A service on a log whose beginning was archived, before its start and under its feet."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from benchmarks.served import Served, command, environment, manifest, start
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 120.0


class Place:
    """A folder with a log, its archive, and the service that runs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "voda.db"
        self.archive = folder / "archive"
        self._served: list[Served] = []

    def up(self) -> Served:
        served = start(self.folder, "--port", "0", "--ratelimit", "0", "--slots", "2", "--halt-on-exit")
        self._served.append(served)
        return served

    def end(self) -> None:
        for served in self._served:
            served.kill()

    def voda(self, *arguments: object) -> str:
        done = subprocess.run(
            command(*map(str, arguments)),
            env=environment(self.folder),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.end()


def run(served: Served, name: str) -> None:
    """Submit a job and wait for its end."""
    served.ask("POST", "/api/v1/jobs", manifest(name, "true"))
    until_it_is(served, name, "Completed")


def until_it_is(served: Served, name: str, phase: str) -> None:
    wait_until(lambda: served.get(f"/api/v1/jobs/{name}")["phase"] == phase, within_s=WAIT_S)


def positions(served: Served) -> list[int]:
    answer: dict[str, Any] = served.get("/api/v1/events?after=0&limit=500")
    return [event["position"] for event in answer["items"]]


def test_service_starts_and_works_on_an_archived_log_and_tells_of_what_is_in_the_archive(place: Place) -> None:
    first = place.up()
    run(first, "old")
    before = first.get("/api/v1/jobs/old/explain")["decisions"]
    first.stop()
    told = json.loads(place.voda("log", "trim", place.log, place.archive, "--before", 1_000_000, "-o", "json"))
    assert told["events"] == told["base"] > 5

    second = place.up()
    run(second, "new")
    # The plan that frees what it had comes a moment after its end.
    assert second.get("/api/v1/jobs/old/explain")["decisions"][: len(before)] == before
    seen = positions(second)
    assert seen == list(range(1, len(seen) + 1))
    assert seen[-1] > told["base"]
    second.stop()

    # Under its feet: a running service finds what it is asked for where it went.
    third = place.up()
    place.voda("log", "trim", place.log, place.archive, "--before", 1_000_000)
    assert positions(third)[: len(seen)] == seen
    run(third, "newer")
    assert "new" in place.voda("explain", place.log, "new")
    third.stop()
    assert "are what was written" in place.voda("log", "verify", place.log, "--archive", place.archive)


def test_service_without_the_archive_works_and_says_what_it_lacks(place: Place) -> None:
    first = place.up()
    run(first, "old")
    first.ask("POST", "/api/v1/jobs", manifest("waits", "true", least=3, most=3))
    until_it_is(first, "waits", "Waiting")
    first.stop()
    place.voda("log", "trim", place.log, place.archive, "--before", 1_000_000)
    place.archive.rename(place.folder / "elsewhere")

    second = place.up()
    assert second.get("/api/v1/pools/default/plan")["pool"] == "default"
    assert second.get("/api/v1/jobs/waits/explain")["phase"] == "Waiting"
    run(second, "new")
    assert second.get("/api/v1/jobs/new/explain")["phase"] == "Completed"
    with pytest.raises(HTTPError) as refused:
        second.get("/api/v1/jobs/old/explain")
    assert refused.value.code == 410
    assert "were archived to" in json.loads(refused.value.read())["detail"]
    second.stop()
