"""What a job may wish for, at its submission and later."""

from typing import Any

import pytest

from tests.builders import a_job, a_spec
from voda.domain.errors import InvalidInput
from voda.domain.job import MOST_REPLICAS, PREEMPTED, Phase, category_of, validated
from voda.domain.reasons.requests import Requested
from voda.events.types import JobChanged
from voda.projections.jobs.requests import respecified


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"min_replicas": 0}, "min_replicas is 0"),
        ({"gpus_per_replica": -1}, "gpus_per_replica is -1"),
        ({"min_replicas": 3, "max_replicas": 2}, "max_replicas is 2"),
        ({"max_replicas": MOST_REPLICAS + 1}, f"max_replicas is {MOST_REPLICAS + 1}"),
        ({"epochs": -1}, "epochs is -1"),
        ({"max_replicas": 4, "requested_replicas": 5}, "requested_replicas is 5"),
        ({"min_replicas": 2, "max_replicas": 4, "requested_replicas": 1}, "requested_replicas is 1"),
    ],
)
def test_spec_when_a_bound_is_impossible_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=f"job a: {field}, expected"):
        validated(a_spec("a", **fields))


@pytest.mark.parametrize("job_id", ["", "A", "a.b", "-a", "a-", "a b", "a" * 129])
def test_spec_when_its_id_is_no_token_of_a_stream_is_refused(job_id: str) -> None:
    with pytest.raises(InvalidInput, match="expected a name of"):
        validated(a_spec(job_id))


def test_spec_when_it_is_as_large_as_can_be_has_4096_replicas() -> None:
    assert validated(a_spec("a", max_replicas=4096)).max_replicas == 4096
    with pytest.raises(InvalidInput, match="expected 4096 or less"):
        validated(a_spec("a", max_replicas=4097))


def test_spec_when_its_id_is_far_too_long_is_refused_with_the_beginning_of_it() -> None:
    with pytest.raises(InvalidInput, match=f"^job '{'a' * 80}': expected a name of"):
        validated(a_spec("a" * 1000))


def test_spec_when_all_is_possible_is_returned_as_it_is() -> None:
    spec = a_spec("a-1_b", min_replicas=1, requested_replicas=2, max_replicas=MOST_REPLICAS)
    assert validated(spec) is spec


@pytest.mark.parametrize(
    "change",
    [
        JobChanged(job_id="a", min_replicas=5),
        JobChanged(job_id="a", max_replicas=MOST_REPLICAS + 1),
        JobChanged(job_id="a", min_replicas=-1),
        JobChanged(job_id="a", max_replicas=-1),
    ],
)
def test_change_when_its_bounds_are_impossible_changes_nothing(change: JobChanged) -> None:
    spec = a_spec("a", min_replicas=1, max_replicas=4)
    assert respecified(spec, change) == spec


def test_wish_when_its_bounds_exclude_the_request_moves_it_inside() -> None:
    spec = a_spec("a", min_replicas=1, requested_replicas=3, max_replicas=4)
    assert respecified(spec, JobChanged(job_id="a", max_replicas=2)).requested == 2
    assert respecified(spec, JobChanged(job_id="a", min_replicas=4)).requested == 4


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("resnet", "resnet"),
        ("resnet-12", "resnet"),
        ("resnet-2026-11-21t10-00-00", "resnet"),
        ("resnet-0123abcd-7", "resnet"),
        ("resnet50", "resnet50"),
    ],
)
def test_category_of_a_name_is_the_name_without_number_time_or_hash(name: str, category: str) -> None:
    assert category_of(name) == category


def test_processes_know_their_job_by_its_id_and_by_its_name_or_else_its_id() -> None:
    assert a_spec("train-2", name="train").environment == {"VODA_JOB_ID": "train-2", "VODA_JOB_NAME": "train"}
    assert a_spec("train-2").environment == {"VODA_JOB_ID": "train-2", "VODA_JOB_NAME": "train-2"}


@pytest.mark.parametrize("phase", Phase)
def test_job_is_preempted_only_while_it_waits(phase: Phase) -> None:
    assert a_job(phase=phase, interruption=PREEMPTED).is_preempted == (phase is Phase.WAITING)
    assert not a_job(phase=phase, interruption="failed").is_preempted
    assert not a_job(phase=phase, interruption=PREEMPTED, halt=Requested(by="ada")).is_preempted
