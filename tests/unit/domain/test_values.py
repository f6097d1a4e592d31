"""Values of the domain: nobody changes them, their fields are named, and what is not said takes no room in the log."""

import math
from typing import Any

import msgspec
import pytest

from tests.builders import a_job, a_node, a_spec, a_state
from voda.domain.job import Job
from voda.domain.lease import Lease
from voda.domain.plan import Allocation, HaltJob, Plan, ResizeJob, StartJob, StopJob
from voda.domain.settings import Settings
from voda.domain.state import Estimate

VALUES = [
    a_spec(),
    a_job(),
    a_node(),
    a_state(),
    Settings(),
    Estimate(speedup=(0.0, 1.0)),
    Plan(pool="p"),
    Allocation(replicas={}, reasons={}),
    Lease(holder="a", transitions=1, duration_s=15.0, renewed_at="", version="1"),
    StartJob(job_id="a", nodes=("n1",)),
    ResizeJob(job_id="a", nodes=("n1",)),
    HaltJob(job_id="a"),
    StopJob(job_id="a", reason="failed"),
]


def name_of(value: msgspec.Struct) -> str:
    return type(value).__name__


@pytest.mark.parametrize("value", VALUES, ids=name_of)
def test_value_when_a_field_is_set_refuses(value: msgspec.Struct) -> None:
    field = value.__struct_fields__[0]
    with pytest.raises(AttributeError, match="immutable"):
        setattr(value, field, getattr(value, field))


@pytest.mark.parametrize("value", VALUES, ids=name_of)
def test_value_when_its_fields_are_not_named_is_refused(value: msgspec.Struct) -> None:
    with pytest.raises(TypeError, match="positional"):
        type(value)(*(getattr(value, field) for field in value.__struct_fields__))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (a_spec("a"), {"job_id": "a"}),
        (a_node("n1", gpus=4), {"name": "n1", "gpus": 4}),
        (Estimate(speedup=(0.0, 1.0)), {"speedup": (0.0, 1.0)}),
        (
            Job(spec=a_spec("a"), submitted_at=0.0, counted_at=0.0),
            {"spec": {"job_id": "a"}, "submitted_at": 0.0, "counted_at": 0.0},
        ),
    ],
    ids=lambda value: name_of(value) if isinstance(value, msgspec.Struct) else "",
)
def test_value_when_written_leaves_out_what_is_not_said(value: msgspec.Struct, written: dict[str, Any]) -> None:
    assert msgspec.to_builtins(value) == written


def test_job_when_just_submitted_has_had_nothing() -> None:
    job = Job(spec=a_spec(), submitted_at=0.0, counted_at=0.0)
    counts = [getattr(job, field) for field in job.__struct_fields__]
    assert [count for count in counts if isinstance(count, int | float)] == [0] * 20
    assert (job.replicas, job.gpus, job.workers, job.refusals, job.uid) == (0, 0, {}, {}, "")


def test_plan_when_none_was_decided_yet_is_empty() -> None:
    plan = Plan(pool="p")
    assert (plan.number, plan.based_on, plan.decided_at, plan.replicas, plan.reasons) == (0, 0, 0.0, {}, {})
    assert (plan.policy, plan.placer, plan.cause) == ("", "", "")


def test_settings_and_estimates_when_nothing_is_known_are_what_the_documentation_says() -> None:
    settings = Settings()
    assert (settings.policy, settings.placer, settings.ratelimit_s) == ("elastic-fifo", "steady", 30.0)
    assert (settings.resize_cost_s, settings.span_penalty, settings.heeds_resize_cost) == (60.0, 0.1, True)
    estimate = Estimate(speedup=(0.0, 1.0))
    assert (estimate.remaining_s, estimate.resize_cost_s, estimate.span_penalty) == (math.inf, 0.0, 0.0)
    assert estimate.is_assumed


def test_time_left_when_replicas_give_speed_shrinks_and_without_any_is_unknown() -> None:
    estimate = Estimate(speedup=(0.0, 1.0, 1.5), remaining_s=300.0)
    assert [estimate.time_left_s(replicas) for replicas in range(3)] == [math.inf, 300.0, 200.0]


def test_settings_when_nothing_is_set_are_those_of_the_documentation() -> None:
    settings = Settings()
    assert (settings.policy, settings.placer, settings.heeds_resize_cost) == ("elastic-fifo", "steady", True)
    assert (settings.ratelimit_s, settings.resize_cost_s, settings.span_penalty) == (30.0, 60.0, 0.1)


def test_estimate_when_nothing_is_known_costs_nothing() -> None:
    nothing = Estimate(speedup=(0.0, 1.0))
    assert (nothing.remaining_s, nothing.resize_cost_s, nothing.span_penalty) == (math.inf, 0.0, 0.0)
