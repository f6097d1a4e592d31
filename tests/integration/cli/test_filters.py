"""Filters of every command that lists: what is listed matches all of them, whichever are given together."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reasons import worded
from tests.served import Server, served
from voda.client import Client
from voda.domain.errors import InvalidInput
from voda.domain.job import JobSpec
from voda.events.types import JobCanceled, JobCompleted, JobFailed, JobSubmitted, PlanAdopted, WorkerStarted

JOBS = 24
POOLS, USERS, NAMESPACES, TEAMS = ("p0", "p1"), ("ada", "bob", "root"), ("default", "vision"), ("a", "b", "c")
PHASES = ("Submitted", "Waiting", "Running", "Completed", "Failed", "Canceled", "live")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with jobs of all phases, users, pools, namespaces and teams."""
    with served(tmp_path_factory.mktemp("home"), pools=POOLS) as server:
        for number in range(JOBS):
            spec = JobSpec(
                job_id=f"j{number}",
                name=f"n{number % 7}" if number % 6 > 2 else f"j{number}",
                pool=POOLS[number % 2],
                user=USERS[number % 3],
                namespace=NAMESPACES[number // 2 % 2],
                labels={"team": TEAMS[number // 3 % 3]},
                priority=number % 4,
            )
            server.happens(JobSubmitted(spec=spec))
            _end(server, spec, number % 6)
        yield server


def _end(server: Server, spec: JobSpec, what: int) -> None:
    job_id = spec.job_id
    ends: dict[int, JobCompleted | JobFailed | JobCanceled]
    ends = {3: JobCompleted(job_id=job_id), 4: JobFailed(job_id=job_id), 5: JobCanceled(job_id=job_id)}
    if what in ends:
        server.happens(ends[what])
    elif what == 1:
        reasons = {job_id: worded("its minimum")}
        plan: dict[str, Any] = {"policy": "elastic-fifo", "placer": "steady", "cause": "job.submitted"}
        server.happens(
            PlanAdopted(
                pool=spec.pool, number=int(job_id[1:]), based_on=1, placed={job_id: ("n1",)}, reasons=reasons, **plan
            ),
            WorkerStarted(job_id=job_id, workers={0: "n1"}),
        )


some_phases = st.lists(st.sampled_from(PHASES), max_size=2, unique=True)
chosen = st.fixed_dictionaries(
    {},
    optional={
        "phase": some_phases,
        "pool": st.sampled_from(POOLS),
        "user": st.sampled_from(USERS),
        "namespace": st.sampled_from(NAMESPACES),
        "selector": st.sampled_from([f"team={team}" for team in TEAMS]),
    },
)
named = st.lists(st.integers(0, JOBS - 1), max_size=3, unique=True)


def matching(jobs: Sequence[dict[str, Any]], filters: dict[str, Any]) -> list[str]:
    """Return the ids of the jobs that match, by a plain look at each."""
    tests: dict[str, Callable[[dict[str, Any], Any], bool]] = {
        "phase": lambda job, phases: (
            not phases or job["phase"] in phases or ("live" in phases and job["phase"] in PHASES[:3])
        ),
        "selector": lambda job, text: job["labels"]["team"] == text.partition("=")[2],
    }
    found = []
    for job in jobs:
        if all(
            tests.get(key, lambda job, value, key=key: job[key] == value)(job, want) for key, want in filters.items()
        ):
            found.append(job["job_id"])
    return found


def arguments(filters: dict[str, Any]) -> list[str]:
    phases = [word for phase in filters.get("phase", ()) for word in ("--phase", phase)]
    others = {key: value for key, value in filters.items() if key != "phase"}
    return [*phases, *(word for key, value in others.items() for word in (f"--{key}", value))]


def jobs_of(server: Server) -> list[dict[str, Any]]:
    return list(msgspec.json.decode(server.voda("get", "--all", "-o", "json").stdout)["items"])


@settings(max_examples=80, deadline=None)
@given(filters=chosen, names=named, every=st.booleans(), output=st.sampled_from(["name", "wide", "json"]))
def test_get_lists_what_a_plain_look_at_each_job_finds(
    full: Server, filters: dict[str, Any], names: list[int], every: bool, output: str
) -> None:
    jobs = jobs_of(full)
    expected = set(matching(jobs, filters))
    if not every and not names and not filters.get("phase"):
        expected &= set(matching(jobs, {"phase": ["live"]}))
    if names:
        expected &= {f"j{number}" for number in names}
    words = ["--all"] if every else []
    told = full.voda("get", *(f"@j{number}" for number in names), *words, *arguments(filters), "-o", output).stdout
    if output == "json":
        answer = msgspec.json.decode(told)
        found = [job["job_id"] for job in answer.get("items", [answer])]
    else:
        found = [line.split()[0] for line in told.splitlines()][1 if output == "wide" else 0 :]
    assert sorted(found) == sorted(expected)


@settings(max_examples=30, deadline=None)
@given(filters=chosen)
def test_other_lists_of_jobs_are_what_a_plain_look_at_each_finds(full: Server, filters: dict[str, Any]) -> None:
    jobs = jobs_of(full)
    with Client(home=full.home) as client:
        assert sorted(job.job_id for job in client.list(**filters)) == sorted(matching(jobs, filters))
    known = {key: value for key, value in filters.items() if key in ("pool", "user", "selector")}
    queued = matching(jobs, {**known, "phase": ["Submitted", "Waiting"]})
    assert sorted(full.voda("queue", *arguments(known), "-o", "name").stdout.split()) == sorted(queued)
    shown = {key: value for key, value in known.items() if key != "user"}
    live = matching(jobs, {**shown, "phase": ["live"]})
    rows = [line.split() for line in full.voda("top", *arguments(shown)).stdout.splitlines()]
    assert sorted(row[1] for row in rows if {*row[2:4]} & {*PHASES[:3]}) == sorted(live)


def test_get_when_only_mine_are_asked_for_lists_those_of_the_caller(full: Server) -> None:
    me = msgspec.json.decode(full.voda("whoami", "-o", "json").stdout)["user"]
    assert full.voda("get", "--all", "--mine", "-o", "name").stdout.split() == matching(jobs_of(full), {"user": me})
    with pytest.raises(InvalidInput, match=r"^--mine and --user ada name two users: give one of them$"):
        full.voda("get", "--mine", "--user", "ada")


@pytest.mark.parametrize("words", [("--all",), ("--user", "ada"), ("-l", "team=a"), ("--phase", "Failed")])
def test_get_of_nodes_and_pools_refuses_what_chooses_jobs(full: Server, words: tuple[str, ...]) -> None:
    for kind in ("nodes", "pools"):
        with pytest.raises(InvalidInput, match=f"chooses jobs: {kind} have --pool alone$"):
            full.voda("get", kind, *words)


def test_get_of_nodes_and_pools_when_a_pool_is_named_lists_those_of_it_alone(full: Server) -> None:
    assert full.voda("get", "pools", "--pool", "p1", "-o", "name").stdout == "p1\n"
    assert full.voda("get", "pools", "p0", "--pool", "p1", "-o", "name").stdout == ""
    nodes = msgspec.json.decode(full.voda("get", "nodes", "-o", "json").stdout)["items"]
    for pool in POOLS:
        found = full.voda("get", "nodes", "--pool", pool, "-o", "name").stdout.split()
        assert found == [node["name"] for node in nodes if node["pool"] == pool]
        for node in nodes:
            one = full.voda("get", "nodes", node["name"], "--pool", pool, "-o", "name").stdout.split()
            assert one == ([node["name"]] if node["pool"] == pool else [])
