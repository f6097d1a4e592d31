"""What pods take is counted as the scheduler counts it, in whatever order they come and go."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.trimmed import a_node_object, a_pod
from voda.cluster.kubernetes.resources.pod_requests import NodeLoad, pod_requests
from voda.domain.errors import InvalidInput


def a_container(requests: Mapping[str, str], *, limits: Mapping[str, str] | None = None, **fields: Any) -> Any:
    return {"name": "c", "resources": {"requests": requests, "limits": limits or {}}, **fields}


def test_pod_requests_of_containers_are_added_and_the_pod_counts_as_one() -> None:
    pod = a_pod(containers=[a_container({"cpu": "500m", "memory": "1Ki"}), a_container({"cpu": "2"})])
    assert pod_requests(pod) == {"cpu": 2500, "memory": 1024 * 1000, "pods": 1000}


def test_pod_requests_of_init_containers_count_only_as_the_greatest() -> None:
    pod = a_pod(
        containers=[a_container({"cpu": "2"})],
        initContainers=[a_container({"cpu": "1", "memory": "5"}), a_container({"cpu": "3"})],
    )
    assert pod_requests(pod) == {"cpu": 3000, "memory": 5000, "pods": 1000}


def test_pod_requests_of_sidecars_are_added_to_containers_and_to_later_init_containers() -> None:
    pod = a_pod(
        containers=[a_container({"cpu": "2"})],
        initContainers=[
            a_container({"cpu": "4"}),
            a_container({"cpu": "1"}, restartPolicy="Always"),
            a_container({"cpu": "4"}),
        ],
    )
    assert pod_requests(pod)["cpu"] == 5000


def test_pod_requests_of_a_pod_as_a_whole_stand_for_its_containers() -> None:
    pod = a_pod(requests={"cpu": "1", "nvidia.com/gpu": "2"}, resources={"requests": {"cpu": "6"}})
    assert pod_requests(pod) == {"cpu": 6000, "nvidia.com/gpu": 2000, "pods": 1000}


def test_pod_requests_of_a_runtime_are_added_to_everything() -> None:
    pod = a_pod(requests={"cpu": "1"}, overhead={"cpu": "250m", "memory": "1"})
    assert pod_requests(pod) == {"cpu": 1250, "memory": 1000, "pods": 1000}


def test_pod_requests_of_a_limit_alone_are_the_limit() -> None:
    pod = a_pod(containers=[a_container({"cpu": "1"}, limits={"cpu": "2", "nvidia.com/gpu": "1"})])
    assert pod_requests(pod) == {"cpu": 1000, "nvidia.com/gpu": 1000, "pods": 1000}


def test_pod_requests_of_no_quantity_are_refused_by_the_pods_name() -> None:
    with pytest.raises(InvalidInput, match="pod default/digits-worker-0: expected a Kubernetes quantity"):
        pod_requests(a_pod(requests={"cpu": "much"}))


def test_free_of_a_loaded_node_is_what_it_has_less_what_is_taken() -> None:
    load = NodeLoad()
    load.add("default/a", a_pod(requests={"cpu": "33", "nvidia.com/gpu": "3"}))
    free = load.free(a_node_object())
    assert (free["cpu"], free["nvidia.com/gpu"], free["pods"]) == (-1000, 5000, 109_000)


def test_add_of_a_pod_that_is_there_replaces_it() -> None:
    load = NodeLoad()
    load.add("default/a", a_pod(requests={"cpu": "1", "memory": "1"}))
    load.add("default/a", a_pod(requests={"cpu": "3"}))
    assert load.taken == {"cpu": 3000, "pods": 1000}


def test_add_of_a_pod_that_cannot_be_read_changes_nothing() -> None:
    load = NodeLoad()
    load.add("default/a", a_pod(requests={"cpu": "1"}))
    with pytest.raises(InvalidInput):
        load.add("default/a", a_pod(requests={"cpu": "?"}))
    assert load.taken == {"cpu": 1000, "pods": 1000}


pods = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 9).map(lambda n: f"{n}00m"))
steps = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | pods))


@given(steps)
def test_load_after_any_coming_and_going_is_that_of_the_pods_there(
    steps: list[tuple[str, dict[str, str] | None]],
) -> None:
    load, there = NodeLoad(), dict[str, dict[str, str]]()
    for key, requests in steps:
        if requests is None:
            load.remove(key)
            there.pop(key, None)
        else:
            load.add(key, a_pod(key, requests=requests))
            there[key] = requests
    fresh = NodeLoad()
    for key, requests in there.items():
        fresh.add(key, a_pod(key, requests=requests))
    assert load.taken == fresh.taken


@given(st.permutations(["a", "b", "c", "d"]))
def test_load_after_all_pods_went_is_nothing(order: list[str]) -> None:
    load = NodeLoad()
    for key in "abcd":
        load.add(key, a_pod(key, requests={"cpu": f"{ord(key)}m", "memory": "1.5Gi"}))
    for key in order:
        load.remove(key)
    assert load.taken == {}
