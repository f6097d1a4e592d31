"""What the JobState of a job's object says."""

from typing import Any

import pytest

from tests.builders import a_job
from tests.reasons import worded
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV2
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.objects import ObjectMeta
from voda.domain.job import Phase
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.requests import Requested
from voda.operator.status.job_states import (
    job_state,
    refused_fields,
    settled_finish,
    shown_fields,
    state_name,
    state_of,
)
from voda.projections.jobs.record import JobRecord

NOW = 1_700_000_000.0


def a_record(*, job: dict[str, Any] | None = None, **fields: Any) -> JobRecord:
    """Return the record of a job that waits."""
    return JobRecord(job=a_job("digits", **(job or {})), submitted_position=1, revision=1, **fields)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (a_record(job={"phase": Phase.SUBMITTED}), "Waiting"),
        (a_record(), "Waiting"),
        (a_record(planned=("n1", "n2")), "Starting 0/2"),
        (a_record(planned=("n1", "n2"), job={"workers": {0: "n1"}}), "Running 1/2"),
        (a_record(job={"workers": {0: "n1"}}), "Halting 1/0"),
        (a_record(job={"interruption": "preempted"}), "Preempted"),
        (a_record(planned=("n1",), job={"workers": {0: "n1"}, "is_canceling": True}), "Canceling"),
        (a_record(finished_at=2.0, job={"phase": Phase.COMPLETED}), "Completed"),
        (a_record(finished_at=2.0, job={"phase": Phase.FAILED, "workers": {0: "n1"}}), "Failed"),
        (a_record(finished_at=2.0, job={"phase": Phase.CANCELED, "is_canceling": True}), "Canceled"),
    ],
)
def test_state_is_one_word_with_workers_there_and_planned(record: JobRecord, expected: str) -> None:
    # The builder sees workers as running.
    assert state_of(record) == expected


def explanation_of(record: JobRecord) -> str | None:
    explanation: str | None = shown_fields(record, None, NOW, None)["explanation"]
    return explanation


def test_explanation_is_the_plans_sentence() -> None:
    assert explanation_of(a_record(reason=worded("waits for 2 GPUs"))) == "waits for 2 GPUs"


def test_explanation_tells_what_failed_last_while_the_job_has_not_what_it_shall() -> None:
    failing: dict[str, Any] = {"reason": worded("fits"), "last_error": "StartJob: no quota"}
    assert explanation_of(a_record(planned=("n1",), **failing)) == "fits; StartJob: no quota"
    running = a_record(planned=("n1",), job={"workers": {0: "n1"}}, **failing)
    assert explanation_of(running) == "fits"


def test_explanation_tells_what_a_job_waits_for_also_while_it_holds_all_its_gpus() -> None:
    stuck = a_record(
        planned=("n1",), job={"workers": {0: "n1"}}, reason=worded("fits"), stall=Said(text="worker 0 has no image")
    )
    assert explanation_of(stuck) == "fits; worker 0 has no image"


def test_explanation_of_a_job_that_is_canceled_says_by_whom() -> None:
    record = a_record(reason=worded("fits"), cancel_reason=Requested(by="ann"), job={"is_canceling": True})
    assert explanation_of(record) == "canceled by ann"


def test_explanation_is_bounded() -> None:
    assert len(explanation_of(a_record(reason=worded("x" * 10_000))) or "") == 512


def test_ended_job_has_no_estimate() -> None:
    ended = a_record(finished_at=NOW, job={"phase": Phase.COMPLETED})
    fields = shown_fields(ended, NOW + 60.0, NOW, "2023-11-14T23:00:00Z")
    assert fields == {"job": "digits", "state": "Completed", "explanation": None, "estimatedFinish": None}


def test_refusal_says_why() -> None:
    fields = refused_fields("no such pool")
    assert fields == {"job": None, "state": "Refused", "explanation": "no such pool", "estimatedFinish": None}


def test_state_is_owned_by_the_object_and_two_kinds_of_one_name_have_one_each() -> None:
    meta = ObjectMeta(name="digits", namespace="vision", uid="u-1")
    made = job_state(MPIJobV2(), meta, refused_fields("no"))
    owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "digits", "uid": "u-1"}
    assert made["metadata"] == {"name": "digits.mpijob", "namespace": "vision", "ownerReferences": [owner]}
    assert state_name(PyTorchJobV1(), meta) == "digits.pytorchjob"


def test_finish_is_told_in_whole_minutes_that_are_not_over_before() -> None:
    assert settled_finish(None, NOW + 61.0, NOW) == "2023-11-14T22:15:00Z"


@pytest.mark.parametrize(
    ("moved_s", "is_told"),
    [(0.0, False), (59.0, False), (120.0, False), (540.0, True), (-120.0, False), (-540.0, True)],
)
def test_finish_far_away_is_told_anew_only_where_it_moved_by_much(moved_s: float, is_told: bool) -> None:
    shown = settled_finish(None, NOW + 7_200.0, NOW)
    assert (settled_finish(shown, NOW + 7_200.0 + moved_s, NOW) != shown) is is_told


def test_finish_that_is_near_is_told_anew_where_it_moved_by_two_minutes() -> None:
    shown = settled_finish(None, NOW + 300.0, NOW)
    assert settled_finish(shown, NOW + 420.0, NOW) != shown


def test_finish_stays_while_nothing_is_forecast_until_it_is_over() -> None:
    shown = settled_finish(None, NOW + 300.0, NOW)
    assert settled_finish(shown, None, NOW + 200.0) == shown
    assert settled_finish(shown, None, NOW + 600.0) is None


@pytest.mark.parametrize("written", ["soon", "", "2023-13-45", "9" * 400, "0001-01-01T00:00:00"])
def test_finish_that_somebody_else_wrote_is_replaced(written: str) -> None:
    assert settled_finish(written, NOW + 60.0, NOW) == settled_finish(None, NOW + 60.0, NOW)
    assert settled_finish(written, None, NOW) is None


@pytest.mark.parametrize("expected", [float("inf"), float("nan"), 1e18])
def test_finish_beyond_the_calendar_is_none(expected: float) -> None:
    assert settled_finish(None, expected, NOW) is None
