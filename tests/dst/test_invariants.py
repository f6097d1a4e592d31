"""The checker notices every rule that is broken, and nothing else."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.builders import Log
from tests.dst.cluster import Held
from tests.dst.invariants.arrays import Arrays
from tests.dst.invariants.broken import Broken
from tests.dst.invariants.order import Order
from tests.dst.invariants.plans import Plans
from tests.dst.invariants.tries import Tries
from tests.dst.invariants.truth import refuse_untrue
from voda.domain.dependency import Condition, Dependency
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.job_array import ArrayTask
from voda.domain.node import Node
from voda.domain.reasons.nodes import Said
from voda.events.envelope import Event
from voda.events.types import (
    AnyFact,
    JobBackedOff,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobSubmitted,
    LeaderElected,
    NodeChanged,
    NodeDrainRequested,
    NodeJoined,
    PlanAdopted,
    WorkerExited,
    WorkerStarted,
)

_NODE = Node(name="n1", gpus=Gpus(4))
_JOB = JobSpec(job_id="a", min_replicas=2, max_replicas=3)


def events(*facts: AnyFact) -> Sequence[Event]:
    log = Log()
    return [log.add(fact, at=float(at)) for at, fact in enumerate(facts)]


def led(*elections: tuple[int, str, AnyFact]) -> Sequence[tuple[Event, str]]:
    """Return events with their epochs, and who appended them."""
    made = events(*[fact for _, _, fact in elections])
    told = [(epoch, by) for epoch, by, _ in elections]
    return [(replace(event, epoch=epoch), by) for event, (epoch, by) in zip(made, told, strict=True)]


def a_plan(number: int = 1, *, based_on: int, released: tuple[str, ...] = (), **placed: tuple[str, ...]) -> PlanAdopted:
    return PlanAdopted(
        pool="default",
        number=number,
        based_on=based_on,
        policy="fifo",
        placer="packed",
        cause="tick",
        placed=placed,
        released=released,
    )


def broken_by_order(history: Sequence[tuple[Event, str]]) -> str:
    order = Order()
    for event, by in history[:-1]:
        order.see(event, by)
    with pytest.raises(Broken) as broken:
        order.see(*history[-1])
    return broken.value.rule


def broken_by_plans(history: Sequence[Event]) -> str:
    plans = Plans()
    for event in history[:-1]:
        plans.see(event)
    with pytest.raises(Broken) as broken:
        plans.see(history[-1])
    return broken.value.rule


def test_order_when_a_position_is_left_out_then_it_is_noticed() -> None:
    first, _, third = events(*[JobCompleted(job_id="a")] * 3)
    assert broken_by_order([(first, ""), (third, "")]) == "order"


def test_order_when_an_id_is_there_twice_then_it_is_noticed() -> None:
    first, second = events(*[JobCompleted(job_id="a")] * 2)
    assert broken_by_order([(first, ""), (replace(second, event_id=first.event_id), "")]) == "once"


def test_order_when_an_epoch_goes_down_then_it_is_noticed() -> None:
    first, second = (LeaderElected(pool="p", leader=who) for who in ("r0", "r1"))
    assert broken_by_order(led((2, "r0.1", first), (1, "r1.1", second))) == "epochs"


def test_order_when_two_lead_in_one_epoch_then_it_is_noticed() -> None:
    claim, election = LeaderElected(pool="", leader="r0"), LeaderElected(pool="p", leader="r1")
    assert broken_by_order(led((1, "r0.1", claim), (1, "r1.1", election))) == "one leader"


def test_order_when_an_epoch_is_begun_twice_then_it_is_noticed() -> None:
    election = LeaderElected(pool="p", leader="r0")
    assert broken_by_order(led((1, "r0.1", election), (1, "r0.1", election))) == "one leader"


def test_order_when_a_decision_is_of_no_election_then_it_is_noticed() -> None:
    election = LeaderElected(pool="default", leader="r0")
    assert broken_by_order(led((1, "r0.1", election), (2, "r0.1", a_plan(based_on=1)))) == "fenced"


def test_order_when_another_life_decides_in_an_epoch_then_it_is_noticed() -> None:
    election = LeaderElected(pool="default", leader="r0")
    assert broken_by_order(led((1, "r0.1", election), (1, "r0.2", a_plan(based_on=1)))) == "fenced"


def test_order_when_leaders_follow_each_other_then_nothing_is_noticed() -> None:
    order = Order()
    for event, by in led(
        (1, "r0.1", LeaderElected(pool="", leader="r0")),
        (1, "r0.1", LeaderElected(pool="default", leader="r0")),
        (2, "r1.1", LeaderElected(pool="", leader="r1")),
        # Not fenced yet: the pool's own stream has not seen the later epoch.
        (1, "r0.1", a_plan(based_on=2)),
        (2, "r1.1", LeaderElected(pool="default", leader="r1")),
        (2, "r1.1", a_plan(2, based_on=5)),
    ):
        order.see(event, by)
    assert order.leaders == {1: "r0", 2: "r1"}


@pytest.mark.parametrize("replicas", [1, 4])
def test_plans_when_a_job_is_out_of_its_bounds_then_it_is_noticed(replicas: int) -> None:
    plan = a_plan(based_on=2, a=("n1",) * replicas)
    assert broken_by_plans(events(NodeJoined(node=_NODE), JobSubmitted(spec=_JOB), plan)) == "bounds"


def test_plans_when_a_node_is_overfull_then_it_is_noticed() -> None:
    two_each = replace(_JOB, gpus_per_replica=2)
    plan = a_plan(based_on=2, a=("n1",) * 3)
    assert broken_by_plans(events(NodeJoined(node=_NODE), JobSubmitted(spec=two_each), plan)) == "capacity"


def test_plans_when_a_node_is_not_ready_any_more_then_it_is_noticed() -> None:
    lost = NodeChanged(node=replace(_NODE, is_ready=False))
    history = events(NodeJoined(node=_NODE), JobSubmitted(spec=_JOB), lost, a_plan(based_on=3, a=("n1",) * 2))
    assert broken_by_plans(history) == "capacity"


def test_plans_when_workers_stay_on_a_node_that_is_silent_then_nothing_is_noticed() -> None:
    silent = NodeChanged(node=replace(_NODE, is_ready=False))
    started = WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"})
    begun = (NodeJoined(node=_NODE), JobSubmitted(spec=_JOB), started, silent)
    plans = Plans()
    for event in events(*begun, a_plan(based_on=4, a=("n1",) * 2)):
        plans.see(event)
    assert plans.placements == {"default": {"a": ("n1", "n1")}}
    assert broken_by_plans(events(*begun, a_plan(based_on=4, a=("n1",) * 3))) == "capacity"
    draining = NodeChanged(node=replace(_NODE, is_draining=True))
    assert broken_by_plans(events(*begun, draining, a_plan(based_on=5, a=("n1",) * 2))) == "capacity"
    drained = NodeDrainRequested(name="n1"), NodeChanged(node=_NODE)
    assert broken_by_plans(events(*begun, *drained, a_plan(based_on=6, a=("n1",) * 2))) == "capacity"


def test_plans_when_a_node_is_lost_after_what_it_is_based_on_then_nothing_is_noticed() -> None:
    lost = NodeChanged(node=replace(_NODE, is_ready=False))
    plans = Plans()
    for event in events(NodeJoined(node=_NODE), JobSubmitted(spec=_JOB), lost, a_plan(based_on=2, a=("n1",) * 2)):
        plans.see(event)
    assert plans.placements == {"default": {"a": ("n1", "n1")}}


def test_plans_when_a_job_that_ended_is_kept_then_it_is_noticed() -> None:
    first = a_plan(based_on=2, a=("n1", "n1"))
    history = events(
        NodeJoined(node=_NODE), JobSubmitted(spec=_JOB), first, JobCompleted(job_id="a"), a_plan(2, based_on=4)
    )
    assert broken_by_plans(history) == "plans"


def test_plans_when_a_number_is_left_out_then_it_is_noticed() -> None:
    assert broken_by_plans(events(NodeJoined(node=_NODE), a_plan(2, based_on=1))) == "plans"


def test_truth_when_a_node_holds_more_than_it_has_then_it_is_noticed() -> None:
    held = {index: Held(node="n1", gpus=2, state="ending", since_s=0.0) for index in range(3)}
    with pytest.raises(Broken, match="6 GPUs are held on node n1, which has 4"):
        refuse_untrue({"n1": _NODE}, {"a": held}, {"a": _JOB})


def test_truth_when_nobody_submitted_what_runs_then_it_is_noticed() -> None:
    with pytest.raises(Broken, match="nobody submitted"):
        refuse_untrue({"n1": _NODE}, {"b": {0: Held(node="n1", gpus=2, state="running", since_s=0.0)}}, {"a": _JOB})


def test_job_that_is_found_stuck_before_it_was_tried_again_is_a_breach() -> None:
    stuck = JobBackedOff(
        pool="default", job_id="a", at_work=0, planned=2, since=0.0, reason=Said(text="no pods"), retry_after_s=240.0
    )
    log, tries = Log(), Tries()
    for fact, at in ((stuck, 0.0), (stuck, 240.0), (JobChanged(job_id="a", priority=1), 300.0), (stuck, 301.0)):
        tries.see(log.add(fact, at=at))
    with pytest.raises(Broken, match="found stuck 1 s before"):
        tries.see(log.add(stuck, at=540.0))


def a_task(index: int, *, at_once: int = 1, indices: str = "0-1") -> JobSubmitted:
    task = ArrayTask(array_id="s-0", name="s", index=index, indices=indices, at_once=at_once)
    return JobSubmitted(spec=JobSpec(job_id=f"s-{index}", min_replicas=1, max_replicas=1, array=task))


def a_job_after(condition: Condition = "ok", *, array: str = "") -> JobSubmitted:
    after = (Dependency(job_id="s-0" if array else "a", array=array, condition=condition),)
    return JobSubmitted(spec=JobSpec(job_id="b", min_replicas=1, max_replicas=1, after=after))


def broken_by_arrays(appends: Sequence[Sequence[AnyFact]]) -> str:
    """Return the rule that the last append breaks; empty where it breaks none."""
    log, plans = Log(), Plans()
    arrays = Arrays(plans)
    broken = ""
    for number, facts in enumerate(appends, start=1):
        made = [log.add(fact, at=float(number)) for fact in facts]
        for event in made:
            plans.see(event)
        if number < len(appends):
            arrays.see(made)
            continue
        try:
            arrays.see(made)
        except Broken as error:
            broken = error.rule
    return broken


def test_arrays_when_a_task_is_submitted_twice_or_left_out_then_it_is_noticed() -> None:
    again = JobSubmitted(spec=replace(a_task(1).spec, job_id="s-1-2"))
    assert broken_by_arrays([[a_task(0), a_task(1)]]) == ""
    assert broken_by_arrays([[a_task(0), a_task(1), again]]) == "arrays"
    assert broken_by_arrays([[a_task(0)]]) == "arrays"


def test_arrays_when_more_tasks_are_at_work_than_the_bound_says_then_it_is_noticed() -> None:
    node, tasks = [NodeJoined(node=_NODE)], [a_task(0), a_task(1)]
    both = replace(a_plan(based_on=3), placed={"s-0": ("n1",), "s-1": ("n1",)})
    assert broken_by_arrays([node, tasks, [both]]) == "at once"
    two_at_once = [a_task(0, at_once=2), a_task(1, at_once=2)]
    assert broken_by_arrays([node, two_at_once, [both]]) == ""


@pytest.mark.parametrize(("based_on", "rule"), [(6, "at once"), (7, "")])
def test_arrays_when_a_task_has_ended_then_it_is_at_work_until_its_workers_are_gone(based_on: int, rule: str) -> None:
    first = [replace(a_plan(based_on=3), placed={"s-0": ("n1",)})]
    ended: Sequence[AnyFact] = [WorkerStarted(job_id="s-0", workers={0: "n1"}), JobCompleted(job_id="s-0")]
    gone = [WorkerExited(job_id="s-0", workers=(0,), cause="finished")]
    second = replace(a_plan(2, based_on=based_on, released=("s-0",)), placed={"s-1": ("n1",)})
    history: Sequence[Sequence[AnyFact]] = [
        [NodeJoined(node=_NODE)],
        [a_task(0), a_task(1)],
        first,
        ended,
        gone,
        [second],
    ]
    assert broken_by_arrays(history) == rule


@pytest.mark.parametrize(
    ("condition", "end", "based_on", "rule"),
    [
        ("ok", JobCompleted(job_id="a"), 4, ""),
        ("ok", JobCompleted(job_id="a"), 3, "after"),
        ("ok", JobFailed(job_id="a", reason=Said(text="exit 1")), 4, "after"),
        ("any", JobFailed(job_id="a", reason=Said(text="exit 1")), 4, ""),
    ],
)
def test_arrays_when_a_job_does_not_wait_for_the_job_before_it_then_it_is_noticed(
    condition: Condition, end: AnyFact, based_on: int, rule: str
) -> None:
    jobs = [JobSubmitted(spec=_JOB), a_job_after(condition)]
    plan = [a_plan(based_on=based_on, b=("n1",))]
    assert broken_by_arrays([[NodeJoined(node=_NODE)], jobs, [end], plan]) == rule


@pytest.mark.parametrize(("ended", "rule"), [(("s-0", "s-1"), ""), (("s-0",), "after")])
def test_arrays_when_a_job_does_not_wait_for_all_tasks_before_it_then_it_is_noticed(
    ended: Sequence[str], rule: str
) -> None:
    ends = [JobCompleted(job_id=job_id) for job_id in ended]
    jobs = [a_task(0), a_task(1), a_job_after(array="s")]
    plan = [a_plan(based_on=4 + len(ends), b=("n1",))]
    assert broken_by_arrays([[NodeJoined(node=_NODE)], jobs, ends, plan]) == rule
