"""Quantities are read as Kubernetes reads them, and what pods take is counted as the scheduler counts it."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.kube.trimmed import a_pod
from voda.cluster.kubernetes.objects import Pod
from voda.domain.errors import InvalidInput
from voda.kinds.quantities import LARGEST, milli, pod_requests

BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
DECIMAL = {suffix: 1000**power for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))}


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ("7910m", 7910),
        ("2", 2000),
        (2, 2000),
        (0.5, 500),
        ("0.5", 500),
        (".5", 500),
        ("1.", 1000),
        ("+3", 3000),
        ("-1", -1000),
        ("1e3", 1_000_000),
        ("1E3", 1_000_000),
        ("1E", 10**21),
        ("25e-1", 2500),
        (1e3, 1_000_000),
        (1e-9, 1),
        ("16Gi", 16 * 1024**3 * 1000),
        ("1.5Gi", 3 * 1024**3 * 500),
        ("128974848", 128974848000),
        ("129e6", 129 * 10**9),
        ("0", 0),
        ("-0", 0),
    ],
)
def test_milli_of_what_people_write_is_exact(quantity: str | int | float, expected: int) -> None:
    assert milli(quantity) == expected


@pytest.mark.parametrize(("quantity", "expected"), [("1n", 1), ("1u", 1), ("0.1m", 1), ("1001u", 2), ("-1u", -1)])
def test_milli_of_less_than_a_thousandth_is_rounded_away_from_zero(quantity: str, expected: int) -> None:
    assert milli(quantity) == expected


@pytest.mark.parametrize("quantity", ["1e99999999", "9" * 60, "8Ei", "9223372036854775808", "1e+400"])
def test_milli_beyond_the_largest_is_the_largest(quantity: str) -> None:
    assert milli(quantity) == LARGEST


def test_milli_of_an_endless_fraction_is_a_thousandth_and_of_nothing_nothing() -> None:
    assert milli("1e-99999999") == 1
    assert milli("0e99999999") == 0


@pytest.mark.parametrize(
    "quantity",
    ["", " ", "1 ", "m", ".", "1.2.3", "1e", "0x10", "1_000", "1KI", "1K", "1ki", "1mm", "--1", "٣", "inf", "1\n"],
)
def test_milli_of_no_quantity_is_refused_with_what_was_expected(quantity: str) -> None:
    with pytest.raises(InvalidInput, match="expected a Kubernetes quantity such as 500m, 2 or 16Gi, got"):
        milli(quantity)


@pytest.mark.parametrize("quantity", [float("nan"), float("inf"), True, "1" * 100_000])
def test_milli_of_hostile_numbers_is_refused_in_a_short_sentence(quantity: str | float) -> None:
    with pytest.raises(InvalidInput) as refused:
        milli(quantity)
    assert len(str(refused.value)) < 200


def a_container(requests: Mapping[str, str], *, limits: Mapping[str, str] | None = None, **fields: Any) -> Any:
    return {"name": "c", "resources": {"requests": requests, "limits": limits or {}}, **fields}


def requests_of(pod: Pod) -> Mapping[str, int]:
    return pod_requests(pod.spec, f"pod {pod.metadata.key}")


def test_pod_requests_of_containers_are_added() -> None:
    pod = a_pod(containers=[a_container({"cpu": "500m", "memory": "1Ki"}), a_container({"cpu": "2"})])
    assert requests_of(pod) == {"cpu": 2500, "memory": 1024 * 1000}


def test_pod_requests_of_init_containers_count_only_as_the_greatest() -> None:
    pod = a_pod(
        containers=[a_container({"cpu": "2"})],
        initContainers=[a_container({"cpu": "1", "memory": "5"}), a_container({"cpu": "3"})],
    )
    assert requests_of(pod) == {"cpu": 3000, "memory": 5000}


def test_pod_requests_of_sidecars_are_added_to_containers_and_to_later_init_containers() -> None:
    pod = a_pod(
        containers=[a_container({"cpu": "2"})],
        initContainers=[
            a_container({"cpu": "4"}),
            a_container({"cpu": "1"}, restartPolicy="Always"),
            a_container({"cpu": "4"}),
        ],
    )
    assert requests_of(pod)["cpu"] == 5000


def test_pod_requests_of_a_pod_as_a_whole_stand_for_its_containers() -> None:
    pod = a_pod(requests={"cpu": "1", "nvidia.com/gpu": "2"}, resources={"requests": {"cpu": "6"}})
    assert requests_of(pod) == {"cpu": 6000, "nvidia.com/gpu": 2000}


def test_pod_requests_of_a_runtime_are_added_to_everything() -> None:
    pod = a_pod(requests={"cpu": "1"}, overhead={"cpu": "250m", "memory": "1"})
    assert requests_of(pod) == {"cpu": 1250, "memory": 1000}


def test_pod_requests_of_a_limit_alone_are_the_limit() -> None:
    pod = a_pod(containers=[a_container({"cpu": "1"}, limits={"cpu": "2", "nvidia.com/gpu": "1"})])
    assert requests_of(pod) == {"cpu": 1000, "nvidia.com/gpu": 1000}


def test_pod_requests_of_no_quantity_are_refused_by_the_pods_name() -> None:
    with pytest.raises(InvalidInput, match="pod default/digits-worker-0: expected a Kubernetes quantity"):
        requests_of(a_pod(requests={"cpu": "much"}))
