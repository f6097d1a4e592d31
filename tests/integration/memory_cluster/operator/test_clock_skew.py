"""A leader whose clock is a minute off says so, and its jobs start, shrink, lose a node and end as with any other."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tests.kube.client import Object
from tests.kube.memory_api import Wire
from tests.kube.memory_world import POOL, MemoryWorld, wall_s
from tests.kube.objects import an_mpijob
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.virtual_time import virtually
from voda.events.envelope import Event
from voda.events.text.stalls import stall_text
from voda.events.types import JobCompleted, JobStalled

GRACE_S = 40


GRACE_S = 40


class Life(NamedTuple):
    """What a leader did."""

    stalls: Sequence[str]
    forced_after_s: float
    """From the silence of a node until voda has taken its pods away though nobody confirmed their end."""
    completed: Sequence[str]
    warning: str


async def life(skew_s: float) -> Life:
    """Let a job grow, shrink for another one and lose a node that falls silent; the clock is off by `skew_s`."""
    async with MemoryWorld(1, [MpiOperatorV2]) as world:
        for number in range(3):
            await world.add_node(f"n{number}", 2, POOL)
        async with world.replica(Wire(1, longest_s=0.02), skew_s=skew_s) as replica:
            await world.submit(a_job(world, "a", least=1, most=6))
            await world.until_running("a", 6)
            await world.submit(a_job(world, "b", least=2, most=2))
            await world.until_running("b", 2)
            await world.until_running("a", 4)
            lost = (await world.workers_of("a"))[0]["spec"]["nodeName"]
            silent_since = wall_s()
            await world.lose_node(lost)
            await world.set_ready(lost, False)
            await world.until(lambda: not any(pod["spec"].get("nodeName") == lost for pod in world.workers()))
            forced_after_s = wall_s() - silent_since
            await world.until_running("a", 2)
            await world.restore_node(lost)
            await world.set_ready(lost, True)
            await world.until_running("a", 4)
            await world.end_launcher("b")
            await world.end_launcher("a")
            await world.until_it_is(lambda: have_completed(world, 2))
            warning = replica.service.backend.health_warning()
        facts = [event.data for event in await events(world)]
    stalls = [stall_text(fact.reason) for fact in facts if isinstance(fact, JobStalled)]
    completed = sorted(fact.job_id for fact in facts if isinstance(fact, JobCompleted))
    return Life(stalls, forced_after_s, completed, warning)


def a_job(world: MemoryWorld, name: str, *, least: int, most: int) -> Object:
    slow_to_end = {"terminationGracePeriodSeconds": GRACE_S}
    return an_mpijob(name, world.namespace, least=least, most=most, pool=POOL, suspend=True, worker_spec=slow_to_end)


async def events(world: MemoryWorld) -> Sequence[Event]:
    return await world.store.read(0, 100_000)


async def have_completed(world: MemoryWorld, jobs: int) -> bool:
    return sum(isinstance(event.data, JobCompleted) for event in await events(world)) == jobs


@pytest.mark.parametrize(
    ("skew_s", "warning"),
    [
        (0.0, ""),
        (60.0, "the clock of this replica is 60 s ahead of that of the API server"),
        (-60.0, "the clock of this replica is 60 s behind that of the API server"),
    ],
)
def test_clock_that_is_a_minute_off_is_told_and_changes_nothing(skew_s: float, warning: str) -> None:
    lived = virtually(life(skew_s))
    assert lived.stalls == []
    # The grace of the node, that of its pods, and the half minute that a kubelet has to confirm their end.
    assert 60.0 + GRACE_S + 30.0 - 1.0 <= lived.forced_after_s <= 60.0 + GRACE_S + 30.0 + 10.0
    assert lived.completed == ["ns_a", "ns_b"]
    assert lived.warning.startswith(warning)
    assert bool(lived.warning) == bool(warning)
