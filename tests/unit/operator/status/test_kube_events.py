"""What is sent as Kubernetes Events."""

import re
from collections.abc import Mapping
from typing import Any, get_args

import pytest

from voda.cluster.kubernetes.kinds.jobset import JobSetV1Alpha2
from voda.cluster.kubernetes.objects import ObjectMeta, OwnerReference
from voda.operator.status.kube_events import (
    WARNINGS,
    Announcement,
    Reason,
    Subject,
    event_object,
    events_path,
    rfc3339,
    shortened,
    subject_of,
)

TRAINER = "trainer.kubeflow.org/v1alpha1"
MADE_OF: Mapping[str, Any] = {"api_version": TRAINER, "kind": "TrainJob", "name": "digits", "uid": "t1"}


def an_announcement(**fields: object) -> Announcement:
    """Return one that says that a job was resized."""
    subject = Subject(api_version="kubeflow.org/v2beta1", kind="MPIJob", namespace="team", name="digits", uid="u1")
    given = {"subject": subject, "reason": "Resized", "message": "2 -> 3 workers", "at": 1_700_000_000.5, "key": "7"}
    return Announcement(**{**given, **fields})  # type: ignore[arg-type]


def test_event_names_its_object_by_uid() -> None:
    event = event_object(an_announcement())
    assert event["involvedObject"]["uid"] == "u1"
    assert event["involvedObject"]["namespace"] == event["metadata"]["namespace"] == "team"
    assert event["firstTimestamp"] == "2023-11-14T22:13:20Z"


def test_event_about_a_jobset_that_a_trainjob_became_is_on_the_trainjob() -> None:
    made_of = OwnerReference(**MADE_OF, controller=True)
    meta = ObjectMeta(name="digits", namespace="team", uid="u1", owner_references=(made_of,))
    subject = subject_of(JobSetV1Alpha2(), meta)
    assert (subject.api_version, subject.kind, subject.uid) == (TRAINER, "TrainJob", "t1")


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(OwnerReference(**MADE_OF), id="no controller"),
        pytest.param(OwnerReference(**{**MADE_OF, "api_version": "example.com/v1"}, controller=True), id="other group"),
    ],
)
def test_event_about_a_jobset_that_names_another_kind_of_owner_is_on_the_jobset(stranger: OwnerReference) -> None:
    assert subject_of(JobSetV1Alpha2(), ObjectMeta(name="a", uid="u1", owner_references=(stranger,))).uid == "u1"


def test_event_told_again_has_the_same_name() -> None:
    again = an_announcement(at=1_700_000_099.0, message="worded otherwise")
    assert event_object(again)["metadata"]["name"] == event_object(an_announcement())["metadata"]["name"]


@pytest.mark.parametrize("field", [{"key": "8"}, {"reason": "Migrated"}])
def test_events_that_tell_something_else_have_names_of_their_own(field: dict[str, str]) -> None:
    assert (
        event_object(an_announcement(**field))["metadata"]["name"]
        != event_object(an_announcement())["metadata"]["name"]
    )


@pytest.mark.parametrize("name", ["a" * 253, "Odd_Name", "1.2.3", "..", "ünï"])
def test_event_has_a_name_that_the_server_takes_whatever_its_object_is_called(name: str) -> None:
    subject = Subject(api_version="v1", kind="MPIJob", namespace="team", name=name, uid="u1")
    found = event_object(an_announcement(subject=subject))["metadata"]["name"]
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert re.fullmatch(rf"{label}(\.{label})*", found)
    assert len(found) <= 253


@pytest.mark.parametrize("reason", get_args(Reason))
def test_event_is_a_warning_where_somebody_may_have_to_do_something(reason: Reason) -> None:
    event = event_object(an_announcement(reason=reason))
    assert event["type"] == ("Warning" if reason in WARNINGS else "Normal")


def test_message_is_one_line_that_the_server_takes() -> None:
    message = event_object(an_announcement(message="ä" * 5_000 + "\n\0"))["message"]
    assert len(message.encode()) <= 1_024
    assert message.endswith("...")
    assert message.isprintable()


def test_text_that_is_short_enough_stays_but_for_its_line_breaks() -> None:
    assert shortened("two\nlines\tand \x1b[31mred", 100) == "two lines and [31mred"
    assert shortened("half \ud800 a character", 100) == "half a character"


def test_namespace_cannot_lead_elsewhere() -> None:
    assert events_path("../x") == "/api/v1/namespaces/..%2Fx/events"


def test_instants_are_told_in_whole_seconds() -> None:
    assert rfc3339(0.999) == "1970-01-01T00:00:00Z"
