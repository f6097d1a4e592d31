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


async def test_name_in_a_log_means_the_users_own_job_or_that_of_the_owner_before_the_slash() -> None:
    store, clock = MemoryStore(), VirtualClock(0.0)
    for job_id, user in (("a", "ann"), ("a-2", "bob"), ("a-3", "ann"), ("a-4", "bob")):
        fact = JobSubmitted(spec=a_spec(job_id, name="a", user=user))
        await store.append(fact.stream, ANY_VERSION, [Fact(data=fact, event_id=clock.new_id(), recorded_at=0.0)])
    assert [await job_named(store, "a", 4, user=user) for user in ("ann", "bob", "eve")] == ["a-3", "a-4", "a-4"]
    assert await job_named(store, "a", 2, user="ann") == "a"
    assert [await job_named(store, named, 4) for named in ("ann/a", "bob/a", "a")] == ["a-3", "a-4", "a-4"]
