"""Facts in the words of earlier releases are read in those of today."""

from typing import Any

import msgspec

from voda.events.codec import unseal
from voda.events.envelope import Event, Sealed, hash_of
from voda.events.types import JobQueueLevelChanged, JobSubmitted, PlanAdopted, PolicyChanged


def recorded(kind: str, schema: int, data: dict[str, Any]) -> Event:
    """Return the event that an earlier release sealed."""
    body = {
        "stream": "decisions.default",
        "version": 1,
        "event_id": "1",
        "type": kind,
        "schema": schema,
        "recorded_at": "2026-01-01T00:00:00Z",
        "prev": "0" * 64,
        "data": data,
    }
    sealed = msgspec.json.encode(body)
    return unseal(Sealed(1, sealed, hash_of(sealed)))


def test_job_submitted_of_schema_2_loses_its_queue() -> None:
    fact = recorded("job.submitted", 2, {"spec": {"job_id": "a", "queue": "lab", "priority": 3}}).data
    assert isinstance(fact, JobSubmitted)
    assert (fact.spec.job_id, fact.spec.priority) == ("a", 3)


def test_job_priority_changed_is_read_as_a_change_of_the_queue_level() -> None:
    event = recorded("job.priority_changed", 1, {"pool": "default", "job_id": "a", "queue_level": 1})
    assert event.type == "job.queue_level_changed"
    assert event.data == JobQueueLevelChanged(pool="default", job_id="a", queue_level=1)


def test_policy_changed_of_schema_1_sets_the_parameters_of_both_tiresias_policies() -> None:
    data = {"pool": "a", "policy": "fifo", "tiresias_demote_gpu_s": 5.0, "tiresias_compact_pending": 2}
    assert recorded("policy.changed", 1, data).data == PolicyChanged(
        pool="a",
        policy="fifo",
        parameters={"tiresias": {"demote_gpu_s": 5.0}, "elastic-tiresias": {"demote_gpu_s": 5.0, "compact_pending": 2}},
    )
    assert recorded("policy.changed", 1, {"pool": "a", "placer": "packed"}).data == PolicyChanged(
        pool="a", placer="packed"
    )


def test_plan_adopted_of_schema_1_was_decided_without_priorities() -> None:
    data = {
        "pool": "default",
        "number": 3,
        "based_on": 7,
        "policy": "fifo",
        "placer": "steady",
        "cause": "job.priority_changed",
    }
    fact = recorded("plan.adopted", 1, data).data
    assert isinstance(fact, PlanAdopted)
    assert (fact.respects_priority, fact.fills_gaps, fact.cause) == (False, False, "job.queue_level_changed")
    fact = recorded("plan.adopted", 2, data).data
    assert isinstance(fact, PlanAdopted)
    assert (fact.respects_priority, fact.fills_gaps) == (True, False)
    fact = recorded("plan.adopted", 3, data).data
    assert isinstance(fact, PlanAdopted)
    assert (fact.fills_gaps, fact.guaranteed, fact.devices) == (True, {}, {})


def test_job_submitted_of_schema_3_waits_for_no_job_and_is_in_no_array() -> None:
    event = recorded("job.submitted", 3, {"spec": {"job_id": "a", "epochs": 3}})
    assert isinstance(event.data, JobSubmitted)
    assert (event.data.spec.epochs, event.data.spec.after, event.data.spec.array) == (3, (), None)
