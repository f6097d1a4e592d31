"""`voda get` against the real API: what is listed, and in which form."""

import asyncio
import urllib.request

import msgspec
import pytest
import yaml

from tests.reasons import worded
from tests.served import Server
from tests.service import a_manifest
from tests.waiting import DEADLINE_S
from voda.domain.errors import InvalidInput, NotFound
from voda.events.types import JobCompleted, PlanAdopted, WorkerExited


def fetched(server: Server, path: str) -> bytes:
    with urllib.request.urlopen(server.service.url + path, timeout=60) as answer:
        return bytes(answer.read())


def test_get_lists_live_jobs_with_their_size_and_progress(server: Server) -> None:
    head, *rows = server.voda("get").stdout.splitlines()
    assert head.split() == ["NAME", "STATE", "REPLICAS", "PROGRESS", "QUEUE", "ETA", "AGE"]
    assert {row.split()[0]: row.split()[1:3] for row in rows} == {
        "digits": ["Running", "2/1/4"],
        "resnet": ["Running", "1/1/2"],
        "bert": ["Waiting", "0/1/3"],
    }
    assert any("3/20 15%" in row for row in rows)


def test_get_when_all_are_asked_for_lists_ended_jobs_after_the_live_ones(server: Server) -> None:
    server.happens(WorkerExited(job_id="digits", workers=(0, 1), cause="finished"), JobCompleted(job_id="digits"))
    assert "digits" not in server.voda("get").stdout
    rows = server.voda("get", "--all").stdout.splitlines()[1:]
    assert [row.split()[0] for row in rows][-1] == "digits"
    assert "Completed" in rows[-1]
    assert len(rows) == 3


def test_get_as_json_is_what_the_server_sends(server: Server) -> None:
    assert server.voda("get", "digits", "-o", "json").stdout_bytes == fetched(server, "/api/v1/jobs/digits") + b"\n"
    listed = msgspec.json.decode(server.voda("get", "-o", "json").stdout)
    assert (listed["total"], len(listed["items"]), listed["next"]) == (3, 3, None)


def test_get_as_yaml_says_the_same(server: Server) -> None:
    shown = yaml.safe_load(server.voda("get", "nodes", "-o", "yaml").stdout)
    assert shown["items"][0]["jobs"] == {"digits": 2, "resnet": 1}


def test_get_when_there_are_many_jobs_lists_all_pages_or_as_many_as_asked_for(empty: Server) -> None:
    documents = "\n---\n".join(msgspec.json.encode(a_manifest(f"job-{number}")).decode() for number in range(130))
    empty.voda("submit", "-", input=documents)
    assert len(empty.voda("get", "-o", "name").stdout.split()) == 130
    result = empty.voda("get", "--limit", "110")
    assert len(result.stdout.splitlines()) == 111
    assert result.stderr == "voda: 20 more match; --limit 0 lists them all\n"
    assert len(msgspec.json.decode(empty.voda("get", "-o", "json").stdout)["items"]) == 130


def test_get_filters_and_sorts(server: Server) -> None:
    assert server.voda("get", "--phase", "Waiting", "-o", "name").stdout == "bert\n"
    assert server.voda("get", "--phase", "waiting", "-o", "name").stdout == "bert\n"
    assert server.voda("get", "--sort", "-name", "-o", "name").stdout.split() == ["resnet", "digits", "bert"]
    assert server.voda("get", "jobs", "bert", "digits", "-o", "name").stdout.split() == ["bert", "digits"]
    assert "no live job" in server.voda("get", "--user", "nobody").stderr
    assert "no job waits" in server.voda("queue", "--user", "nobody").stderr


def test_get_when_a_filter_or_a_kind_is_unknown_says_what_is_expected(server: Server) -> None:
    phases = "Submitted, Waiting, Running, Completed, Failed, Canceled, live, Preempted, Canceling, Halted"
    with pytest.raises(InvalidInput, match=f"^phase: expected one of {phases}, got 'Paused'$"):
        server.voda("get", "--phase", "paused")
    with pytest.raises(InvalidInput, match=r"^sort: expected one of .*submitted_at, got 'age'$"):
        server.voda("get", "--sort", "age")
    with pytest.raises(
        InvalidInput, match=r"^pods cannot be listed: expected jobs, nodes, pools or the name of a job$"
    ):
        server.voda("get", "pods")


def test_get_filters_by_the_state_that_it_shows(server: Server) -> None:
    server.happens(
        PlanAdopted(
            pool="default",
            number=2,
            based_on=9,
            policy="elastic-fifo",
            placer="steady",
            cause="job.submitted",
            released=("digits",),
            placed={"resnet": ("n1",)},
            reasons={"digits": worded("4 -> 0")},
        ),
        WorkerExited(job_id="digits", workers=(0, 1), cause="stopped"),
    )
    assert server.voda("get", "digits").stdout.splitlines()[1].split()[1] == "Preempted"
    server.voda("delete", "bert")
    assert server.voda("get", "--phase", "preempted", "-o", "name").stdout == "digits\n"
    assert server.voda("get", "--phase", "Canceling", "-o", "name").stdout == "bert\n"


@pytest.mark.parametrize("command", ["get", "describe", "explain", "logs", "events", "delete"])
def test_job_when_its_name_is_mistyped_is_guessed_by_every_command(server: Server, command: str) -> None:
    with pytest.raises(NotFound, match="job 'digit' is not known: did you mean 'digits'"):
        server.voda(command, "digit")
    with pytest.raises(NotFound, match="job 'xyzzy' is not known: `voda get --all`"):
        server.voda(command, "xyzzy")


def test_get_nodes_and_pools(server: Server) -> None:
    assert server.voda("get", "nodes").stdout.splitlines()[1].split() == (
        ["n1", "Ready", "4", "3", "1", "digits", "x2,", "resnet"]
    )
    assert server.voda("get", "node", "n1", "-o", "name").stdout == "n1\n"
    row = server.voda("get", "pools", "-o", "wide").stdout.splitlines()[1].split()
    assert row == ["default", "1", "4", "3", "2", "1", "1", "elastic-fifo", "steady", "30s"]


def test_get_when_watched_prints_a_line_for_each_change_until_the_job_has_ended(server: Server) -> None:
    async def looks() -> str:
        """Return how often jobs were asked for and answered, as the metrics have it."""
        told = (await server.service.ask("GET", "/metrics")).body.decode().splitlines()
        return "".join(line for line in told if line.startswith("voda_http_requests_total{") and "/jobs" in line)

    async def complete(before: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while await looks() == before:  # noqa: ASYNC110 - another thread looks
                await asyncio.sleep(0.01)
        await server.service.happens(JobCompleted(job_id="bert"))

    server.begins(complete(server.does(looks())))
    lines = server.voda("get", "bert", "--watch").stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["STATE", "Waiting", "Completed"]
