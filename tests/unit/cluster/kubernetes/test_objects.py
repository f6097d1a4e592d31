"""Objects are read as far as voda needs them, equal parts once, and odd ones never hide the others."""

from typing import Any

import msgspec
import pytest

from voda.cluster.kubernetes.interning import intern_mapping, intern_value
from voda.cluster.kubernetes.objects import JobObject, NodeObject, Pod
from voda.kubernetes_client.decoding import Unreadable, read, read_name, read_page


def test_pods_that_ask_for_the_same_keep_it_once() -> None:
    one, two = (read(_text("a"), Pod), read(_text("b"), Pod))
    assert one.status.conditions is two.status.conditions
    assert one.spec.containers[0].resources.requests is two.spec.containers[0].resources.requests
    assert one.metadata.labels["app"] is two.metadata.labels["app"]


def test_annotations_of_others_are_dropped_from_pods_and_nodes_and_kept_on_jobs_that_voda_runs() -> None:
    notes = {"voda.dev/job-id": "j", "somebody.example/long": "x" * 1000}
    labels = {"voda.dev/managed": "true"}
    text = msgspec.json.encode({"metadata": {"name": "a", "labels": labels, "annotations": notes}})
    assert read(text, Pod).metadata.annotations == {"voda.dev/job-id": "j"}
    assert read(text, NodeObject).metadata.annotations == {"voda.dev/job-id": "j"}
    assert read(text, JobObject).metadata.annotations == notes
    foreign = msgspec.json.encode({"metadata": {"name": "a", "annotations": notes}})
    assert read(foreign, JobObject).metadata.annotations == {"voda.dev/job-id": "j"}


def test_an_empty_mapping_and_an_empty_tuple_are_not_taken_for_one_another() -> None:
    assert intern_value(()) == ()
    assert intern_mapping({}) == {}
    assert isinstance(intern_mapping({}), dict)


def test_nulls_read_like_fields_left_out() -> None:
    text = b'{"metadata":{"name":"a","labels":null},"spec":{"runPolicy":null},"status":{"conditions":[null]}}'
    assert read(text, JobObject) == read(b'{"metadata":{"name":"a"}}', JobObject)


@pytest.mark.parametrize(
    "text", [b"", b"7", b"[]", b'{"metadata":7}', b'{"spec":{}}', b"[" * 100_000, b'{"metadata":"\xff"}']
)
def test_what_is_no_such_object_is_unreadable(text: bytes) -> None:
    with pytest.raises(Unreadable):
        read(text, JobObject)
    assert read_name(text).key == read_name(text).resource_version == ""


def test_a_page_tells_the_names_of_what_it_leaves_out() -> None:
    items = [{"metadata": {"name": "a"}}, {"metadata": {"name": "odd", "namespace": "n"}, "spec": 7}, 9]
    page, unread = read_page(msgspec.json.encode({"metadata": {"resourceVersion": "5"}, "items": items}), JobObject)
    assert [each.metadata.name for each in page.items or ()] == ["a"]
    assert unread == ["n/odd", ""]
    assert read_page(b'{"metadata":{"resourceVersion":"5"},"items":null}', Pod)[0].items is None


def _text(name: str) -> bytes:
    container = {"name": "main", "resources": {"requests": {"cpu": "8", "nvidia.com/gpu": "1"}}}
    pod: dict[str, Any] = {"metadata": {"name": name, "labels": {"app": "training", "name": name}}}
    pod["spec"] = {"containers": [container]}
    pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.json.encode(pod)
