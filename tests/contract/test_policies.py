"""What every policy keeps, whoever adds it: one suite over all policies found by file."""

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_state
from tests.views import a_large_view, sized_views, views, with_priorities
from voda.domain.reasons.outcomes import Keeps, Preempted, Reason, Resized, Starts, Waits
from voda.domain.reasons.policies import HigherPriority, InOrder, LessValue
from voda.domain.state import ClusterState
from voda.planner.allocation.priority import allocate as by_priority
from voda.policies import POLICIES, Policy, weighs_restarts
from voda.policies.toolkit.estimates import speedup

RIGID = frozenset({"fifo", "srjf", "tiresias"})
"""Policies that give what was requested, and nothing of what is left over."""
EVERY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
EVERY_POLICY = tuple(POLICIES.values())
ELASTIC_POLICIES = tuple(policy for policy in EVERY_POLICY if policy.name not in RIGID)
"""Each view that is drawn is shown to all of them, for drawing takes longer than deciding."""
Named = TypeVar("Named")
CASES = settings(max_examples=150)
ANY = st.one_of(views(), sized_views())


def free_gpus(view: ClusterState, replicas: dict[str, int]) -> int:
    held = sum(count * view.jobs[job_id].spec.gpus_per_replica for job_id, count in replicas.items())
    return view.capacity_gpus - held


def backwards(named: Mapping[str, Named]) -> Mapping[str, Named]:
    return dict(reversed(list(named.items())))


@CASES
@given(ANY)
def test_each_ready_job_when_decided_on_gets_none_or_a_size_at_which_it_runs(view: ClusterState) -> None:
    for policy in EVERY_POLICY:
        replicas = dict(policy.allocate(view, 0.0).replicas)
        assert replicas.keys() == {job_id for job_id, job in view.jobs.items() if not job.is_canceling}
        for job_id, count in replicas.items():
            spec = view.jobs[job_id].spec
            assert count == 0 or spec.min_replicas <= count <= spec.max_replicas
            assert count == spec.size_within(count)
        assert free_gpus(view, replicas) >= 0


@CASES
@given(ANY)
def test_answer_when_the_input_is_reordered_is_the_same(view: ClusterState) -> None:
    for policy in EVERY_POLICY:
        before = msgspec.msgpack.encode(view)
        answer = policy.allocate(view, 0.0)
        assert msgspec.msgpack.encode(view) == before
        turned = replace(
            view,
            jobs=backwards(view.jobs),
            nodes=backwards(view.nodes),
            estimates=backwards(view.estimates),
        )
        assert policy.allocate(turned, 0.0) == answer


@CASES
@given(ANY)
def test_gpus_when_some_job_gains_by_them_are_not_left_idle(view: ClusterState) -> None:
    for policy in ELASTIC_POLICIES:
        replicas = dict(policy.allocate(view, 0.0).replicas)
        free = free_gpus(view, replicas)
        for job_id, count in replicas.items():
            job = view.jobs[job_id]
            spec, curve = job.spec, speedup(view, job)
            size = spec.size_above(count)
            is_weighed = bool(count) and weighs_restarts(policy)
            if size and (size - count) * spec.gpus_per_replica <= free and not is_weighed:
                assert count
                assert curve[size] <= curve[count]


@CASES
@given(ANY)
def test_reason_of_each_job_when_decided_on_agrees_with_the_numbers(view: ClusterState) -> None:
    for policy in EVERY_POLICY:
        answer = policy.allocate(view, 0.0)
        assert answer.reasons.keys() == answer.replicas.keys()
        free = free_gpus(view, dict(answer.replicas))
        for job_id, count in answer.replicas.items():
            spec, had = view.jobs[job_id].spec, len(view.plan.placement.get(job_id, ()))
            reason = answer.reasons[job_id]
            if not count:
                assert isinstance(reason, Preempted if had else Waits)
                sizes = (spec.requested, spec.min_replicas)
                assert reason.free == free
                assert all(isinstance(cause, LessValue) for cause in reason.why)
                assert free < reason.needs in [size * spec.gpus_per_replica for size in sizes]
            elif count == had:
                assert reason == Keeps(workers=count)
            elif had:
                assert isinstance(reason, Resized)
                assert (reason.had, reason.workers) == (had, count)
            else:
                assert isinstance(reason, Starts)
                assert reason.workers == count


@CASES
@given(views(), st.lists(st.integers(-1, 2), min_size=7, max_size=7))
def test_jobs_of_higher_priority_when_lower_ones_are_there_get_what_they_would_get_alone(
    view: ClusterState, priorities: list[int]
) -> None:
    for policy in EVERY_POLICY:
        view = with_priorities(view, priorities)
        answer = by_priority(view, policy, 0.0)
        ready = {job_id: job for job_id, job in view.jobs.items() if not job.is_canceling}
        assert answer.replicas.keys() == answer.reasons.keys() == ready.keys()
        assert free_gpus(view, dict(answer.replicas)) >= 0
        for least in {job.spec.priority for job in ready.values()}:
            upper = {job_id: job for job_id, job in ready.items() if job.spec.priority >= least}
            alone = by_priority(replace(view, jobs=upper), policy, 0.0)
            assert {job_id: answer.replicas[job_id] for job_id in upper} == alone.replicas
            # But for the priority, which is told where there are others.
            told = {job_id: without_priority(answer.reasons[job_id]) for job_id in upper}
            assert told == {job_id: without_priority(reason) for job_id, reason in alone.reasons.items()}


def without_priority(reason: Reason) -> Reason:
    """Return a reason that does not name the priority of the jobs that share the GPUs."""
    why = [replace(cause, priority=None) if isinstance(cause, InOrder) else cause for cause in reason.why]
    return replace(reason, why=tuple(why))


@CASES
@given(views(), st.integers(-3, 3))
def test_answer_when_all_priorities_are_equal_is_the_policys_own(view: ClusterState, priority: int) -> None:
    for policy in EVERY_POLICY:
        view = replace(view, settings=replace(view.settings, heeds_resize_cost=False))
        same = with_priorities(view, [priority] * len(view.jobs))
        assert by_priority(same, policy, 0.0) == policy.allocate(view, 0.0)


@CASES
@given(views(), st.lists(st.integers(-1, 2), min_size=7, max_size=7))
def test_job_when_higher_ones_take_its_gpus_is_told_how_many_they_have(
    view: ClusterState, priorities: list[int]
) -> None:
    for policy in EVERY_POLICY:
        view = with_priorities(view, priorities)
        answer = by_priority(view, policy, 0.0)
        for job_id, reason in answer.reasons.items():
            priority = view.jobs[job_id].spec.priority
            above = {
                other: count * view.jobs[other].spec.gpus_per_replica
                for other, count in answer.replicas.items()
                if count and view.jobs[other].spec.priority > priority
            }
            found = next((cause for cause in reason.why if isinstance(cause, HigherPriority)), None)
            if found is not None:
                assert (found.jobs, found.gpus) == (len(above), sum(above.values()))
            else:
                assert answer.replicas[job_id] or not above


@EVERY
def test_policy_when_there_is_nothing_to_decide_answers_with_nothing(policy: Policy) -> None:
    answer = policy.allocate(a_state(), 0.0)
    assert (answer.replicas, answer.reasons) == ({}, {})


@EVERY
@pytest.mark.parametrize("curve", ["amdahl", "bent"])
def test_policy_when_there_are_thousands_of_jobs_hands_out_every_gpu(policy: Policy, curve: str) -> None:
    view = a_large_view(2_000, gpus=1_500, curve=curve)
    assert free_gpus(view, dict(policy.allocate(view, 0.0).replicas)) == 0


@EVERY
def test_policy_when_listed_tells_what_it_does_and_whose_idea_it_was(policy: Policy) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9-]*", policy.name)
    assert 0 < len(policy.title) <= 60
    assert re.search(r"\b(19|20)\d\d$", policy.paper)
