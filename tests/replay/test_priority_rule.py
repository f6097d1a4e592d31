"""Plans that were decided before priorities counted are confirmed by the rule of then, later ones by that of today."""

from typing import Any

from msgspec.structs import replace

from tests.builders import a_node, a_spec
from tests.reasons import said
from voda.clock import VirtualClock
from voda.controller.controller import Controller
from voda.domain.gpus import Gpus
from voda.domain.reasons.outcomes import Starts, Waits
from voda.domain.reasons.policies import InOrder
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobSubmitted, NodeJoined, PlanAdopted, RatelimitChanged, WorkerStarted
from voda.log.memory import MemoryStore
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.timetravel.verify import verify


async def an_old_log(**plan: Any) -> MemoryStore:
    """Return a log in which the job that came first runs, though the other one has the higher priority."""
    store = MemoryStore()
    facts: list[AnyFact] = [
        RatelimitChanged(pool="default", ratelimit_s=0.0),
        NodeJoined(node=a_node(gpus=1)),
        JobSubmitted(spec=a_spec("first")),
        JobSubmitted(spec=a_spec("urgent", priority=9)),
        PlanAdopted(
            pool="default",
            number=1,
            based_on=4,
            policy="elastic-fifo",
            placer="steady",
            cause="job.submitted",
            placed={"first": ("n1",)},
            reasons={
                "first": Starts(workers=1, why=(InOrder(running=1, others=1, gpus=Gpus(1)),)),
                "urgent": Waits(needs=Gpus(1)),
            },
            **plan,
        ),
        WorkerStarted(job_id="first", workers={0: "n1"}),
    ]
    for number, data in enumerate(facts):
        fact = Fact(data=data, event_id=f"e{number}", recorded_at=float(number))
        await store.append(data.stream, ANY_VERSION, [fact])
    return store


async def test_verify_when_a_plan_was_decided_without_priorities_confirms_it() -> None:
    found = await verify(await an_old_log(respects_priority=False))
    assert (found.decisions, found.difference) == (1, None)


async def test_verify_when_a_plan_of_today_serves_the_lower_job_first_finds_it() -> None:
    found = await verify(await an_old_log())
    assert found.difference is not None
    assert (found.difference.job_id, found.difference.what) == ("first", "placement")


async def test_controller_when_it_takes_over_an_old_log_decides_by_priority_from_then_on() -> None:
    store = await an_old_log(respects_priority=False)
    controller = Controller(
        pool="default",
        store=store,
        clock=VirtualClock(100.0),
        policies=POLICIES.choose,
        placers=PLACERS.choose,
    )
    await controller.lead("test")
    await controller.step()
    plan = controller.live.cluster.plan("default")
    assert plan.replicas == {"urgent": 1}
    assert said(plan.reasons["first"]) == "preempted: 1 job of higher priority has 1 GPU; needs 1 GPU, none is free"
    found = await verify(store)
    assert (found.decisions, found.difference) == (2, None)
    facts = [event.data for event in await store.read(0, 100) if isinstance(event.data, PlanAdopted)]
    assert [fact.respects_priority for fact in facts] == [False, True]
    assert replace(facts[-1], reasons={}).placed == {"urgent": ("n1",)}
