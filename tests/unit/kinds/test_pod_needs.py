"""What workers ask of their nodes besides GPUs, from the templates of their pods."""

from typing import Any

import msgspec
import pytest

from tests.manifests import a_torch_job, an_indexed_job, an_mpi_job
from voda.domain.errors import InvalidField
from voda.domain.node import NodeTerm, PodNeeds, Requirement, Toleration
from voda.kinds.pod_needs import MOST_BYTES
from voda.manifests.parse import parse

_PATH = "spec.template.spec"
_TERMS = f"{_PATH}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def needs_of(manifest: dict[str, Any]) -> PodNeeds | None:
    return parse(manifest, gpu_resource="nvidia.com/gpu").spec.needs


def an_asking_job(**pod: Any) -> dict[str, Any]:
    """Return a Job whose pods have these fields."""
    manifest = an_indexed_job()
    manifest["spec"]["template"]["spec"].update(pod)
    return manifest


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def matching(operator: str, *values: str, key: str = "cores") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_job_that_asks_for_gpus_alone_asks_for_nothing_else() -> None:
    assert needs_of(an_indexed_job()) is None


def test_job_asks_for_what_its_containers_request_together_without_gpus() -> None:
    resources = {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": 1, "memory": "1Ki", "rdma/hca": 0}}
    containers = [{"name": "t", "image": "t", "resources": resources}, {"name": "s", "resources": resources}]
    needs = needs_of(an_asking_job(containers=containers, overhead={"cpu": "1"}))
    assert needs == PodNeeds(requests={"cpu": 2_000, "memory": 2_048_000})


def test_devices_of_a_class_are_no_resource_of_the_node() -> None:
    resources = {"limits": {"deviceclass.resource.kubernetes.io/nic": 1}}
    assert needs_of(an_asking_job(containers=[{"name": "t", "image": "t", "resources": resources}])) is None


def test_job_asks_for_labels_and_tolerates_taints_as_its_template_says() -> None:
    name = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    needs = needs_of(
        an_asking_job(
            nodeSelector={"zone": "a", "team": "x"},
            affinity=affinity({**matching("Gt", "4"), "matchFields": [name]}, {}),
            tolerations=[
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
                {"key": "slow", "effect": "PreferNoSchedule"},
                {"key": "team", "value": "x"},
                {"key": "team", "operator": "Equal", "value": "x"},
            ],
        )
    )
    label = Requirement(key="cores", operator="Gt", values=("4",))
    field = Requirement(key="metadata.name", operator="In", values=("n1",))
    assert needs == PodNeeds(
        selector={"team": "x", "zone": "a"},
        terms=(NodeTerm(labels=(label,), fields=(field,)), NodeTerm()),
        tolerations=(Toleration(operator="Exists", effect="NoExecute"), Toleration(key="team", value="x")),
    )


def test_preferred_affinity_asks_for_nothing() -> None:
    preferred = [{"weight": 1, "preference": matching("In", "4")}]
    asking = an_asking_job(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    assert needs_of(asking) is None


def test_roles_that_differ_ask_for_the_most_of_each_resource_and_for_what_both_require() -> None:
    roles = (manifest := a_torch_job(masters=1))["spec"]["pytorchReplicaSpecs"]
    master, worker = (roles[role]["template"]["spec"] for role in ("Master", "Worker"))
    master.update(nodeSelector={"zone": "a", "disk": "ssd"}, tolerations=[{"key": "x", "operator": "Exists"}])
    worker.update(nodeSelector={"zone": "a"}, affinity=affinity(matching("Exists")))
    for pod, requests in ((master, {"cpu": "1", "memory": "4"}), (worker, {"cpu": "2"})):
        pod["containers"][0]["resources"] = {"requests": requests}
    assert needs_of(manifest) == PodNeeds(
        requests={"cpu": 2_000, "memory": 4_000},
        selector={"zone": "a"},
        tolerations=(Toleration(key="x", operator="Exists"),),
    )


def test_launcher_is_no_worker_and_its_requests_are_not_theirs() -> None:
    manifest = an_mpi_job()
    launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    launcher.update(nodeSelector={"zone": "a"})
    assert needs_of(manifest) is None


def test_needs_on_one_machine_are_none() -> None:
    assert parse(an_asking_job(nodeSelector={"zone": "a"})).spec.needs is None


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        ({"affinity": affinity()}, f"{_TERMS}: expected at least one term, got none"),
        (
            {"affinity": affinity(matching("Is", "4"))},
            f"{_TERMS}[0].matchExpressions[0].operator: expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt, got"
            " 'Is'",
        ),
        (
            {"affinity": affinity({}, matching("In"))},
            f"{_TERMS}[1].matchExpressions[0].values: expected at least one value for In, got 0",
        ),
        (
            {"affinity": affinity(matching("Exists", "4"))},
            f"{_TERMS}[0].matchExpressions[0].values: expected no values for Exists, got 1",
        ),
        (
            {"affinity": affinity(matching("Lt", "4", "5"))},
            f"{_TERMS}[0].matchExpressions[0].values: expected one value for Lt, got 2",
        ),
        (
            {"affinity": affinity(matching("Gt", "four"))},
            f"{_TERMS}[0].matchExpressions[0].values: expected a whole number for Gt, got 'four'",
        ),
        (
            {"affinity": affinity(matching("Exists", key=""))},
            f"{_TERMS}[0].matchExpressions[0]: expected a key of up to 63 letters, digits, '-', '_' and '.', with an"
            " optional prefix such as example.com/, got ''",
        ),
        (
            {"affinity": affinity(matching("Gt", "-8"))},
            f"{_TERMS}[0].matchExpressions[0][cores]: expected up to 63 letters, digits, '-', '_' and '.', beginning"
            " and ending with a letter or digit, got '-8'",
        ),
        (
            {"nodeSelector": {"team": "a b"}},
            f"{_PATH}.nodeSelector[team]: expected up to 63 letters, digits, '-', '_' and '.', beginning and ending"
            " with a letter or digit, got 'a b'",
        ),
        (
            {"affinity": affinity({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["1"]}]})},
            f"{_TERMS}[0].matchFields[0].key: expected metadata.name, got 'metadata.uid'",
        ),
        (
            {"affinity": affinity({"matchFields": [{"key": "metadata.name", "operator": "Gt", "values": ["1"]}]})},
            f"{_TERMS}[0].matchFields[0].operator: expected one of In, NotIn, got 'Gt'",
        ),
        (
            {"affinity": affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]})},
            f"{_TERMS}[0].matchFields[0].values: expected one value, got 2",
        ),
        (
            {"tolerations": [{"key": "a"}, {"key": "a", "operator": "In"}]},
            f"{_PATH}.tolerations[1].operator: expected one of Equal, Exists, Lt, Gt, got 'In'",
        ),
        (
            {"tolerations": [{"key": "a", "effect": "Never"}]},
            f"{_PATH}.tolerations[0].effect: expected one of NoSchedule, PreferNoSchedule, NoExecute, got 'Never'",
        ),
        (
            {"tolerations": [{"value": "a"}]},
            f"{_PATH}.tolerations[0].operator: expected Exists where there is no key, got 'Equal'",
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            f"{_PATH}.tolerations[0].value: expected none for Exists, got 'b'",
        ),
        (
            {"tolerations": [{"key": "a", "value": "b c"}]},
            f"{_PATH}.tolerations[0][a]: expected up to 63 letters, digits, '-', '_' and '.', beginning and ending with"
            " a letter or digit, got 'b c'",
        ),
        (
            {"overhead": {"cpu": "-1"}},
            f"{_PATH}: cpu: expected 0 or more, got -1",
        ),
    ],
)
def test_what_no_pod_can_ask_for_is_refused_in_one_sentence(pod: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidField) as refused:
        needs_of(an_asking_job(**pod))
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    "pod",
    [
        {"tolerations": [{"key": f"k{number}"} for number in range(10_000)]},
        {"affinity": affinity(matching("In", *(f"node-{number}" for number in range(10_000))))},
        {"affinity": affinity(*(matching("Exists", key=f"k{number}") for number in range(10_000)))},
        {"nodeSelector": {f"k{number}": "v" for number in range(10_000)}},
    ],
)
def test_job_that_asks_for_too_many_things_is_refused(pod: dict[str, Any]) -> None:
    with pytest.raises(InvalidField, match=rf"bytes, expected up to {MOST_BYTES:,}"):
        needs_of(an_asking_job(**pod))


@pytest.mark.parametrize(
    ("pod", "what"),
    [
        ({"tolerations": [{"key": f"k{number}"} for number in range(65)]}, "64 tolerations, got 65"),
        ({"nodeSelector": {f"k{number}": "" for number in range(65)}}, "64 labels in nodeSelector, got 65"),
        ({"affinity": affinity(*[matching("Exists")] * 65)}, "64 nodeSelectorTerms, got 65"),
        (
            {"affinity": affinity({"matchExpressions": matching("Exists")["matchExpressions"] * 257})},
            "256 requirements in nodeSelectorTerms, got 257",
        ),
        ({"affinity": affinity(matching("In", *["a"] * 257))}, "256 values in nodeSelectorTerms, got 257"),
    ],
)
def test_job_that_compares_too_much_with_nodes_is_told_to_name_them_by_a_label(pod: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidField) as refused:
        needs_of(an_asking_job(**pod))
    assert str(refused.value) == (
        f"{_PATH}: expected up to {what}: give the nodes a label that they share, and require it"
    )


def test_requests_that_no_machine_has_fit_into_an_event() -> None:
    needs = needs_of(an_asking_job(overhead={"cpu": "1e99"}))
    assert msgspec.json.decode(msgspec.json.encode(needs), type=PodNeeds) == needs
