"""What LimitRanges and RuntimeClasses add to pods counts as what workers ask for."""

from typing import Any

import msgspec
import pytest

from tests.kube.objects import a_jobset, a_pytorchjob, an_indexed_job, an_mpijob
from voda.cluster.kubernetes.state.pod_defaults import LimitRange, PodDefaults, RuntimeClass, with_pod_defaults
from voda.domain.node import PodNeeds, Toleration
from voda.manifests.parse import parse

GPU = "nvidia.com/gpu"


def limits(name: str, namespace: str = "ns", kind: str = "Container", **fields: Any) -> LimitRange:
    raw = {"metadata": {"name": name, "namespace": namespace}, "spec": {"limits": [{"type": kind, **fields}]}}
    return msgspec.convert(raw, LimitRange)


def defaults(*ranges: LimitRange, **runtime: Any) -> PodDefaults:
    found = PodDefaults()
    for each in ranges:
        found.put_limit_range(each.metadata.key, each)
    if runtime:
        found.put_runtime_class("vm", msgspec.convert({"metadata": {"name": "vm"}, **runtime}, RuntimeClass))
    return found


def needs(job: dict[str, Any], found: PodDefaults) -> PodNeeds | None:
    return with_pod_defaults(parse(job, gpu_resource=GPU), found, GPU).spec.needs


@pytest.mark.parametrize("make", [an_indexed_job, a_jobset, a_pytorchjob, an_mpijob])
def test_containers_that_say_nothing_ask_for_the_default_of_their_namespace(make: Any) -> None:
    job = make("a", "ns")
    assert needs(job, defaults(limits("x", defaultRequest={"cpu": "2"}))) == PodNeeds(requests={"cpu": 2_000})
    for other in (limits("x", "elsewhere", defaultRequest={"cpu": "2"}), limits("x", kind="Pod", max={"cpu": "2"})):
        assert needs(job, defaults(other)) is None
    assert job == make("a", "ns")


def test_defaults_count_for_each_container_that_names_neither_request_nor_limit() -> None:
    containers = [
        {"name": "train", "image": "t", "resources": {"limits": {GPU: "1", "cpu": "8"}}},
        {"name": "log", "image": "t"},
    ]
    job = an_indexed_job("a", "ns", worker_spec={"containers": containers})
    found = defaults(limits("b", default={"cpu": "7"}), limits("a", default={"cpu": "3"}, defaultRequest={"cpu": "1"}))
    assert needs(job, found) == PodNeeds(requests={"cpu": 9_000})


def test_runtime_class_adds_what_it_costs_and_requires() -> None:
    scheduling = {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}
    found = defaults(overhead={"podFixed": {"cpu": "250m"}}, scheduling=scheduling)
    expected = PodNeeds(
        requests={"cpu": 250}, selector={"vm": "yes"}, tolerations=(Toleration(key="vm", operator="Exists"),)
    )
    assert needs(an_indexed_job("a", "ns", worker_spec={"runtimeClassName": "vm"}), found) == expected
    assert needs(an_indexed_job("a", "ns", worker_spec={"runtimeClassName": "other"}), found) is None
    found.put_runtime_class("vm", None)
    assert needs(an_indexed_job("a", "ns", worker_spec={"runtimeClassName": "vm"}), found) is None
