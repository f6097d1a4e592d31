"""How far back an explanation looks for what caused a decision."""

from collections.abc import Sequence

import pytest

from tests.builders import a_node, a_spec
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import AnyFact, JobProgressed, JobSubmitted, NodeJoined, PlanAdopted
from voda.log.memory import MemoryStore
from voda.timetravel.job_explanation import decisions_on, submission_of


class CountingStore(MemoryStore):
    """A store that counts the events of all streams that are read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.read_events = 0

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        events = await super().read(after, limit, stream=stream)
        self.read_events += len(events) if stream is None else 0
        return events


async def a_log(between: int) -> CountingStore:
    """Return a log of a job, so many reports of another, and the plan that the job's submission caused."""
    store = CountingStore()
    facts: list[AnyFact] = [
        NodeJoined(node=a_node("n1")),
        JobSubmitted(spec=a_spec("b")),
        JobSubmitted(spec=a_spec("a")),
        *(JobProgressed(job_id="b", epochs_done=float(epoch), workers=1) for epoch in range(between)),
        PlanAdopted(
            pool="default",
            number=1,
            based_on=between + 3,
            policy="elastic-fifo",
            placer="steady",
            cause="job.submitted",
            placed={"a": ("n1",)},
        ),
    ]
    for number, data in enumerate(facts):
        fact = Fact(data=data, event_id=f"e{number}", recorded_at=float(number))
        await store.append(data.stream, ANY_VERSION, [fact])
    return store


@pytest.mark.parametrize(
    ("between", "cause", "most_read"), [(0, 3, 20), (19, 3, 20), (20, 3, 40), (450, 3, 500), (501, None, 500)]
)
async def test_cause_of_a_decision_is_found_without_reading_what_lies_far_before_it(
    between: int, cause: int | None, most_read: int
) -> None:
    store = await a_log(between)
    end = await store.position()
    submission = await submission_of(store, "a", end)
    [decision] = await decisions_on(store, submission, until=end)
    assert decision.cause_position == cause
    assert store.read_events <= most_read
