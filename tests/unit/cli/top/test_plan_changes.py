"""Claims about what is told of plans, job by job."""

from tests.builders import Log
from voda.api.presenters.events import event_of
from voda.cli.top.plan_changes import PlanChanges
from voda.events.types import JobCompleted, PlanAdopted


def a_plan(number: int, **fields: object) -> PlanAdopted:
    settled = {"policy": "fifo", "placer": "steady", "cause": "job.submitted", **fields}
    return PlanAdopted(pool="default", number=number, based_on=0, **settled)  # type: ignore[arg-type]


def test_change_of_a_job_whose_past_is_known_begins_at_none() -> None:
    changes = PlanChanges(is_complete=True)
    changes.add(event_of(Log().add(a_plan(1, placed={"a": ("n1",)}, reasons={"a": "starts"}), at=0)))
    assert [change.size for change in changes] == ["0 -> 1"]


def test_changes_tell_sizes_before_and_after_newest_first() -> None:
    log, changes = Log(), PlanChanges()
    for fact in (
        a_plan(1, placed={"a": ("n1",)}, reasons={"a": "starts", "b": "waits: 0 free"}),
        a_plan(2, placed={"a": ("n1", "n1", "n2")}, reasons={"a": "grows"}),
        a_plan(3, placed={"a": ("n1", "n2", "n2")}, reasons={"a": "moves"}),
        JobCompleted(job_id="a"),
        a_plan(4, released=("a",), placed={"b": ("n1", "n1")}, reasons={"b": "starts"}),
    ):
        changes.add(event_of(log.add(fact, at=0)))
    assert [(change.job_id, change.size, change.reason) for change in changes] == [
        ("b", "0 -> 2", "starts"),
        ("a", "3 -> 0", "the job had ended"),
        ("a", "3 moved", "moves"),
        ("a", "1 -> 3", "grows"),
        ("b", "waits", "waits: 0 free"),
        ("a", "-> 1", "starts"),
    ]
