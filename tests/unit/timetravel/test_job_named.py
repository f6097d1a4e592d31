"""A name in a log means its latest run up to a moment."""

from tests.builders import a_spec
from voda.clock import VirtualClock
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobCompleted, JobSubmitted
from voda.log.memory import MemoryStore
from voda.timetravel.job_explanation import job_named


async def test_name_means_its_latest_run_up_to_the_position_and_an_id_itself() -> None:
    store, clock = MemoryStore(), VirtualClock(0.0)
    facts: list[AnyFact] = [
        JobSubmitted(spec=a_spec("a", name="a")),
        JobCompleted(job_id="a"),
        JobSubmitted(spec=a_spec("a-2", name="a")),
        JobSubmitted(spec=a_spec("a-3", name="a-3")),
        JobSubmitted(spec=a_spec("lab_a", name="a", namespace="lab")),
        JobSubmitted(spec=a_spec("lab_a-2", name="a", namespace="lab")),
        JobSubmitted(spec=a_spec("x", name="y")),
    ]
    for fact in facts:
        await store.append(fact.stream, ANY_VERSION, [Fact(data=fact, event_id=clock.new_id(), recorded_at=0.0)])
    meant = {named: await job_named(store, named, 7) for named in ("a", "@a", "a-2", "a-3", "lab_a", "x", "gone")}
    assert meant == {"a": "a-2", "@a": "a", "a-2": "a-2", "a-3": "a-3", "lab_a": "lab_a-2", "x": "x", "gone": "gone"}
    assert await job_named(store, "a", 2) == "a"
