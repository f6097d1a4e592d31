"""A halted job has no workers under any policy and placer, and keeps nothing from the others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import said, sentences
from tests.views import views, with_priorities
from voda.domain.plan import Plan
from voda.domain.reasons.requests import Requested
from voda.domain.state import ClusterState
from voda.placement import PLACERS
from voda.placement.steady import Steady
from voda.planner.plan_changes import changes
from voda.planner.registries import Registries
from voda.policies import POLICIES, Policy
from voda.policies.fifo import Fifo
from voda.timetravel.explanation import explain_live

EVERY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())


def halted(view: ClusterState, flags: list[bool]) -> ClusterState:
    """Return the view in which a job is halted where its flag is set; the flags are used in turn."""
    jobs = {
        job_id: replace(job, halt=Requested(by="ann") if flags[number % len(flags)] else None)
        for number, (job_id, job) in enumerate(view.jobs.items())
    }
    return replace(view, jobs=jobs)


@EVERY
@settings(max_examples=60)
@given(
    views(),
    st.lists(st.booleans(), min_size=1, max_size=8),
    st.lists(st.integers(-1, 1), min_size=1, max_size=8),
    st.sampled_from(sorted(PLACERS)),
)
def test_halted_job_gets_no_workers_under_any_policy_and_the_others_what_they_would_without_it(
    policy: Policy, view: ClusterState, flags: list[bool], priorities: list[int], placer: str
) -> None:
    view = halted(with_priorities(view, priorities), flags)
    plan = decide(view, policy, PLACERS.choose(placer), 0.0, cause="tick")
    away = {job_id for job_id, job in view.jobs.items() if job.is_halted and not job.is_canceling}
    assert not away & plan.placement.keys()
    assert all(said(plan.reasons[job_id]) == "halted by ann" for job_id in away)
    others = replace(view, jobs={job_id: job for job_id, job in view.jobs.items() if job_id not in away})
    without = decide(others, policy, PLACERS.choose(placer), 0.0, cause="tick")
    assert plan.placement == without.placement
    assert {job_id: why for job_id, why in plan.reasons.items() if job_id not in away} == without.reasons


def test_halt_of_a_running_job_releases_it_with_the_reason_and_resume_places_it_again() -> None:
    job = a_job("a", halt=Requested(by="ann", text="disk is full"), workers={0: "n1"})
    state = a_state(jobs=[job], nodes=[a_node("n1", gpus=1)], placement={"a": ("n1",)})
    fact = changes(state.plan, decide(state, Fifo(), Steady(), 1.0, cause="tick"), {"a"})
    assert fact is not None
    assert (fact.released, sentences(fact.reasons), fact.placed) == (("a",), {"a": "halted by ann: disk is full"}, {})
    again = replace(state, plan=Plan(pool="default"), jobs={"a": replace(job, halt=None, workers={})})
    assert decide(again, Fifo(), Steady(), 2.0, cause="tick").placement == {"a": ("n1",)}


def test_explanation_of_a_halted_job_tells_who_halted_it_and_how_to_resume_it() -> None:
    jobs = [a_job("a", halt=Requested(by="ann")), a_job("b"), a_job("c")]
    state = a_state(jobs=jobs, nodes=[a_node("n1", gpus=1)])
    told = explain_live(state, "a", 1.0, policies=POLICIES, decide=Registries().decider(state, cause="test"))
    assert (said(told.reason), told.shortage, told.queue_position) == ("halted by ann", None, 0)
    assert told.suggestions == ("waits until it is resumed: voda resume a",)
    assert (
        explain_live(
            state, "c", 1.0, policies=POLICIES, decide=Registries().decider(state, cause="test")
        ).queue_position
        == 1
    )
