"""The simulated world as a whole: the same seed is the same story, everywhere; and faults do what they say."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dst import faults
from tests.dst.faults import Fault
from tests.dst.world import Answer, Outcome, Setup, Unanswered, World, simulate
from tests.service import a_manifest
from voda.events.envelope import Event
from voda.events.types import JobBackedOff, JobCompleted, JobSubmitted, LeaderElected, WorkerStarted

QUIET_S = 1_800.0
REPLICAS = ("r0", "r1", "r2")
NODES = ("n1", "n2", "n3", "n4", "n5")


def a_setup(*wrong: Fault, seed: int = 1, hours: float = 1.0) -> Setup:
    return Setup(seed=seed, hours=hours, quiet_s=QUIET_S, faults=wrong)


def a_troubled_setup(seed: int) -> Setup:
    return a_setup(*faults.drawn(seed, until_s=3_600.0, replicas=REPLICAS, nodes=NODES), seed=seed, hours=1.5)


async def submit(world: World, name: str, **wishes: Any) -> None:
    """Submit a job until there is an answer."""
    while True:
        try:
            answer = await world.ask(
                "POST", "/api/v1/jobs", body=a_manifest(name, **wishes), headers={"Idempotency-Key": name}
            )
        except Unanswered:
            await asyncio.sleep(5.0)
            continue
        if answer.status < 500:
            return
        await asyncio.sleep(5.0)


async def four_jobs(world: World) -> None:
    for number in range(4):
        await asyncio.sleep(300.0 * world.chance.of("users").random())
        await submit(world, f"job-{number}", min_replicas=1, max_replicas=4)


def ended(outcome: Outcome) -> set[str]:
    return {event.data.job_id for event in outcome.events if isinstance(event.data, JobCompleted)}


def lives_that_led(outcome: Outcome) -> list[str]:
    claims = [event.data for event in outcome.events if isinstance(event.data, LeaderElected)]
    return [claim.leader for claim in claims if not claim.pool]


def test_jobs_when_nothing_goes_wrong_are_submitted_run_and_end() -> None:
    outcome = simulate(a_setup(), four_jobs)
    assert outcome.breach == ""
    assert ended(outcome) == {f"job-{number}" for number in range(4)}
    assert len(lives_that_led(outcome)) == 1


def test_same_seed_is_the_same_run_and_another_seed_another_one() -> None:
    first, again, other = (simulate(a_troubled_setup(seed), four_jobs) for seed in (7, 7, 8))
    assert first.trace == again.trace
    assert first.digest == again.digest != other.digest


_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.dst.test_world import a_troubled_setup, four_jobs
from tests.dst.world import simulate
print(simulate(a_troubled_setup(7), four_jobs).digest)
"""


@pytest.mark.slow
def test_same_seed_is_the_same_run_in_every_process() -> None:
    root = Path(__file__).parents[2]
    digests = {simulate(a_troubled_setup(7), four_jobs).digest}
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(root)],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_leader_when_killed_is_followed_and_its_jobs_go_on() -> None:
    wrong = [
        Fault(at_s=at_s, kind="crash", target=name, span_s=400.0)
        for at_s, name in zip((300, 700, 1100), REPLICAS, strict=True)
    ]
    outcome = simulate(a_setup(*wrong, hours=1.5), four_jobs)
    assert outcome.breach == ""
    assert len(set(lives_that_led(outcome))) > 1
    assert ended(outcome) == {f"job-{number}" for number in range(4)}


def test_append_whose_answer_is_lost_is_recorded_once() -> None:
    wrong = [Fault(at_s=0.0, kind="store_after", target=name, span_s=1_500.0, share=0.5) for name in REPLICAS]
    outcome = simulate(a_setup(*wrong), four_jobs)
    assert outcome.breach == ""
    submitted = [event.data.spec.job_id for event in outcome.events if isinstance(event.data, JobSubmitted)]
    assert sorted(submitted) == [f"job-{number}" for number in range(4)]
    assert any("503" in line or "there was no answer" in line for line in outcome.trace)


def test_replica_when_killed_leaves_its_callers_without_an_answer() -> None:
    met: list[object] = []

    async def load(world: World) -> None:
        await asyncio.sleep(60.0)
        asking = asyncio.ensure_future(world.ask("GET", "/api/v1/jobs", replica="r0"))
        await asyncio.sleep(0.0)
        world.replicas[0].kill()
        try:
            met.append(await asking)
        except Unanswered as unknown:
            met.append(unknown)
        met.append(await world.ask("GET", "/api/v1/jobs", replica="r1"))

    simulate(a_setup(), load)
    unknown, answer = met
    assert isinstance(unknown, Unanswered)
    assert isinstance(answer, Answer)
    assert answer.status == 200
    assert answer.json()["items"] == []


def test_watch_that_finds_a_breach_ends_the_run_there() -> None:
    class Watch:
        def committed(self, events: Any, by: str) -> None:
            assert events[0].type != "job.submitted", f"{by} has submitted a job"

        def changed(self, what: str) -> None:
            return

    outcome = simulate(a_setup(), four_jobs, lambda world: [Watch()])
    assert "has submitted a job" in outcome.breach
    assert outcome.at_s < 400.0
    assert outcome.events[-1].type == "job.submitted"


def test_replica_that_ends_by_itself_is_a_breach() -> None:
    async def load(world: World) -> None:
        await asyncio.sleep(60.0)
        service = world.replicas[0].service
        assert service is not None
        service.view.subscribe(lambda event: [].pop())
        await submit(world, "job-0")

    outcome = simulate(a_setup(), load)
    assert outcome.breach.startswith("unforeseen: replica r0.1 ended by itself")


def test_gpus_of_a_stuck_job_are_used_by_others_and_it_is_tried_again_with_longer_and_longer_delays() -> None:
    wrong = Fault(at_s=100.0, kind="job_stuck", target="stuck", span_s=1_600.0)

    async def two_jobs(world: World) -> None:
        gpus = sum(node.gpus for node in world.cluster.nodes.values() if node.pool == "default")
        await submit(world, "stuck", min_replicas=gpus, max_replicas=gpus, priority=9)
        await asyncio.sleep(max(0.0, 100.0 - world.now_s))
        await submit(world, "other", min_replicas=gpus, max_replicas=gpus)

    outcome = simulate(a_setup(wrong, hours=2.0), two_jobs)
    assert outcome.breach == ""
    assert ended(outcome) == {"stuck", "other"}
    began_at = outcome.events[0].recorded_at
    started_at = [each.recorded_at - began_at for each in events_about(outcome, "other", WorkerStarted)]
    # The time-out, and the least span between two plans.
    assert 215.0 <= started_at[0] < 255.0
    tries = [event.data for event in events_about(outcome, "stuck", JobBackedOff)]
    assert [getattr(fact, "retry_after_s", 0.0) for fact in tries] == [240.0, 480.0, 960.0]
    assert len(events_about(outcome, "other", JobBackedOff)) == 0


def events_about(outcome: Outcome, job_id: str, kind: type) -> list[Event]:
    return [
        event
        for event in outcome.events
        if isinstance(event.data, kind) and getattr(event.data, "job_id", "") == job_id
    ]


@pytest.mark.parametrize("kind", sorted(faults.KINDS))
def test_fault_of_each_kind_is_lived_through(kind: str) -> None:
    names = REPLICAS if kind in faults.REPLICA_FAULTS else NODES if kind in faults.NODE_FAULTS else ("",)
    wrong = [
        Fault(at_s=200.0 + 150.0 * turn, kind=kind, target=names[turn % len(names)], span_s=100.0, share=0.7)
        for turn in range(10)
    ]
    outcome = simulate(a_setup(*wrong), four_jobs)
    assert outcome.breach == ""
    assert sum(f"fault {kind}" in line for line in outcome.trace) == 10
    submitted = {event.data.spec.job_id for event in outcome.events if isinstance(event.data, JobSubmitted)}
    assert submitted == {f"job-{number}" for number in range(4)}
