"""Which of a job's pods tells most: the order in which replicas are listed, and the one that is read by default."""

from collections.abc import Mapping

import msgspec
import pytest

from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.pod_logs import most_telling_first


def a_pod(name: str, age: int, labels: Mapping[str, str], **fields: Mapping[str, str]) -> Pod:
    made_at = f"2026-01-01T00:00:0{age}Z"
    meta = {"name": name, "namespace": "ns", "creationTimestamp": made_at, "labels": labels, **fields}
    return msgspec.convert({"metadata": meta}, Pod)


def names(pods: list[Pod]) -> list[str]:
    return [pod.metadata.name for pod in most_telling_first(pods)]


def test_replicas_of_a_job_go_by_index_and_of_one_index_the_youngest_first() -> None:
    labels = {"batch.kubernetes.io/job-name": "j"}
    ages = {"j-10-aaaaa": 3, "j-2-bbbbb": 4, "j-0-ccccc": 1, "j-0-ddddd": 2}
    found = names([a_pod(name, age, labels) for name, age in ages.items()])
    assert found == ["j-0-ddddd", "j-0-ccccc", "j-2-bbbbb", "j-10-aaaaa"]


@pytest.mark.parametrize("annotations", [{"voda.dev/first-index": "1"}, {}])
def test_a_master_goes_before_the_workers(annotations: Mapping[str, str]) -> None:
    labels = {"training.kubeflow.org/job-name": "j"}
    workers = [a_pod(f"j-worker-{number}", 2, labels, annotations=annotations) for number in (1, 0)]
    assert names([*workers, a_pod("j-master-0", 1, labels)]) == ["j-master-0", "j-worker-0", "j-worker-1"]
