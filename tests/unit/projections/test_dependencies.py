"""What becomes of jobs that wait for others, event by event."""

from tests.builders import Log, a_spec
from voda.domain.dependency import Condition, Dependency
from voda.domain.job_array import ArrayTask
from voda.domain.reasons.nodes import Said
from voda.events.text.requests import cancel_text
from voda.events.types import (
    AnyFact,
    JobCanceled,
    JobCancelRequested,
    JobCompleted,
    JobFailed,
    JobSubmitted,
    PlanAdopted,
)
from voda.projections.cluster.dependencies import LiveArray
from voda.projections.cluster.live_cluster import LiveCluster


def on(job_id: str, condition: Condition = "ok", **fields: object) -> Dependency:
    return Dependency(job_id=job_id, condition=condition, **fields)  # type: ignore[arg-type]


def job(job_id: str, *after: Dependency, pool: str = "default", array: str = "") -> JobSubmitted:
    task = None
    if array:
        index = int(job_id.rpartition("-")[2])
        task = ArrayTask(array_id=f"{array}-0", name=array, index=index, indices="0-2")
    return JobSubmitted(spec=a_spec(job_id, after=after, array=task, pool=pool))


def sweep() -> list[AnyFact]:
    return [job(f"sweep-{index}", array="sweep") for index in range(3)]


def folded(*facts: AnyFact) -> LiveCluster:
    """Fold the facts, and again with a snapshot between any two of them: the state is the same."""
    log, live = Log(), LiveCluster()
    events = [log.add(fact, at=position) for position, fact in enumerate(facts)]
    resumed = LiveCluster()
    for event in events:
        live.apply(event)
        resumed.apply(event)
        before, resumed = resumed, LiveCluster()
        resumed.load(before.dump())
        assert resumed.dump() == live.dump()
    assert {pool: resumed.unsatisfiable(pool) for pool in live.pools()} == {
        pool: live.unsatisfiable(pool) for pool in live.pools()
    }
    return live


def unmet(live: LiveCluster) -> dict[str, str]:
    """Return why dependencies of jobs can no longer be met, in words."""
    return {job_id: cancel_text(why) for job_id, why in live.unsatisfiable("default").items()}


def waits_for(live: LiveCluster, job_id: str = "z") -> list[str]:
    found = live.job(job_id)
    assert found is not None, f"{job_id} is live"
    return [dependency.target for dependency in found.waits_for]


def failed(job_id: str) -> JobFailed:
    return JobFailed(job_id=job_id, reason=Said(text="exit code 1"))


def test_job_waits_until_the_other_has_completed() -> None:
    facts = [job("a"), job("z", on("a"))]
    assert waits_for(folded(*facts)) == ["a"]
    live = folded(*facts, JobCompleted(job_id="a"))
    assert (waits_for(live), unmet(live)) == ([], {})


def test_job_waits_for_all_of_several() -> None:
    facts: list[AnyFact] = [job("a"), job("b"), job("z", on("a"), on("b", "any")), failed("b")]
    assert waits_for(folded(*facts)) == ["a"]
    assert waits_for(folded(*facts, JobCompleted(job_id="a"))) == []


def test_job_after_one_that_failed_waits_in_vain_unless_any_end_will_do() -> None:
    live = folded(job("a"), job("z", on("a")), job("y", on("a", "any")), failed("a"))
    assert (unmet(live), waits_for(live, "y")) == ({"z": "a failed"}, [])


def test_job_after_one_that_was_canceled_waits_in_vain() -> None:
    live = folded(job("a"), job("z", on("a")), JobCanceled(job_id="a"))
    assert unmet(live) == {"z": "a was canceled"}


def test_job_waits_for_another_pool_which_is_told() -> None:
    log, live = Log(), LiveCluster()
    for fact in (job("a", pool="p1"), job("z", on("a"), pool="p2")):
        live.apply(log.add(fact, at=1))
    live.apply(log.add(JobCompleted(job_id="a"), at=2))
    assert live.changed_pools == {"p1", "p2"}
    assert waits_for(live) == []


def test_other_that_ended_while_the_job_was_being_submitted_is_no_dependency() -> None:
    live = folded(job("a"), JobCompleted(job_id="a"), job("z", on("a")))
    assert waits_for(live) == []
    live = folded(job("a"), failed("a"), job("z", on("a")), job("y", on("a", "any")))
    assert (unmet(live), waits_for(live, "y")) == ({"z": "a failed"}, [])


def test_dependency_that_was_met_at_submit_is_none() -> None:
    live = folded(job("z", on("long-ago", is_met=True)))
    assert (waits_for(live), unmet(live)) == ([], {})


def test_dependency_on_a_job_that_nobody_knows_cannot_be_met() -> None:
    live = folded(job("z", on("nobody")), job("y", on("nobody", "any")))
    assert unmet(live) == {"z": "nobody ended too long ago to know how"}
    assert waits_for(live, "y") == []


def test_job_waits_for_every_task_of_an_array() -> None:
    facts = [*sweep(), job("z", on("sweep-0", array="sweep")), job("y", on("sweep-0"))]
    ends = [JobCompleted(job_id=f"sweep-{index}") for index in (2, 0, 1)]
    assert waits_for(folded(*facts, *ends[:2])) == ["array sweep"]
    assert waits_for(folded(*facts, *ends[:2]), "y") == []
    assert waits_for(folded(*facts, *ends)) == []


def test_job_after_an_array_waits_in_vain_from_the_first_task_that_fails() -> None:
    facts = [*sweep(), job("z", on("sweep-0", array="sweep")), job("y", on("sweep-0", "any", array="sweep"))]
    live = folded(*facts, JobCompleted(job_id="sweep-0"), failed("sweep-1"))
    assert unmet(live) == {"z": "sweep-1 failed, of array sweep"}
    assert waits_for(live, "y") == ["array sweep"]
    live = folded(*facts, failed("sweep-1"), JobCanceled(job_id="sweep-2"), JobCompleted(job_id="sweep-0"))
    assert (unmet(live), waits_for(live, "y")) == ({"z": "sweep-1 failed, of array sweep"}, [])


def test_array_ends_only_when_all_of_its_tasks_were_seen_and_ended() -> None:
    first, second, third = sweep()
    facts = [first, job("z", on("sweep-0", array="sweep")), JobCompleted(job_id="sweep-0")]
    assert waits_for(folded(*facts)) == ["array sweep"]
    facts += [second, JobCompleted(job_id="sweep-1"), third]
    assert waits_for(folded(*facts)) == ["array sweep"]
    assert waits_for(folded(*facts, JobCompleted(job_id="sweep-2"))) == []


def test_array_that_is_canceled_as_a_whole_waits_for_no_more_tasks() -> None:
    for with_array, left in ((True, []), (False, ["array sweep"])):
        cancel = JobCancelRequested(job_id="sweep-0", with_array=with_array)
        facts = [sweep()[0], job("z", on("sweep-0", "any", array="sweep")), cancel, JobCanceled(job_id="sweep-0")]
        assert waits_for(folded(*facts)) == left


def test_arrays_whose_tasks_never_come_are_bounded() -> None:
    log, live = Log(), LiveCluster()
    for number in range(1001):
        task = ArrayTask(array_id=f"a{number}", name="a", index=0, indices="0-1")
        live.apply(log.add(JobSubmitted(spec=a_spec(f"a{number}", array=task)), at=1))
        if not number:
            live.apply(log.add(job("z", on("a0", array="a")), at=1))
        assert unmet(live) == {}
        live.apply(log.add(JobCompleted(job_id=f"a{number}"), at=1))
    assert unmet(live) == {"z": "not all tasks came, of array a"}
    assert (live.array("a0"), live.array("a1") is None) == (None, False)


def test_job_submitted_after_a_task_failed_waits_in_vain() -> None:
    live = folded(*sweep(), failed("sweep-1"), job("z", on("sweep-0", array="sweep")))
    assert unmet(live) == {"z": "sweep-1 failed, of array sweep"}


def test_job_that_waits_in_vain_and_ends_is_forgotten() -> None:
    live = folded(job("a"), job("z", on("a")), failed("a"), JobCanceled(job_id="z"))
    assert (unmet(live), live.job("z")) == ({}, None)


def test_job_gets_a_new_reason_once_its_dependencies_are_met() -> None:
    plan = PlanAdopted(pool="default", number=1, based_on=2, policy="fifo", placer="steady", cause="job.submitted")
    facts: list[AnyFact] = [job("a"), job("z", on("a")), plan]
    assert folded(*facts).undecided("default") == frozenset()
    assert folded(*facts, JobCompleted(job_id="a")).undecided("default") == {"z"}


def test_array_awaits_the_tasks_that_were_not_submitted_until_it_is_canceled() -> None:
    array = LiveArray(indices="0-2", seen={1: None})
    assert [array.awaits(index) for index in range(3)] == [True, False, True]
    array.is_canceled = True
    assert [array.awaits(index) for index in range(3)] == [False, False, False]


def test_job_when_several_of_its_dependencies_failed_says_so_of_the_first_that_it_names() -> None:
    waiting = [job("alpha"), job("train"), job("z", on("alpha"), on("train"))]
    assert unmet(folded(*waiting, failed("train"))) == {"z": "train failed"}
    assert unmet(folded(*waiting, failed("train"), failed("alpha"))) == {"z": "alpha failed"}
