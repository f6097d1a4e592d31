"""The chart's manifests, applied to a real API server, and the rights that they give to voda and to nobody else."""

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from difflib import ndiff
from typing import NamedTuple

import pytest
import yaml

from tests.kube import deployed
from tests.kube.assets import ROOT
from tests.kube.client import PODS, SECRETS, Client, Refused
from tests.kube.control_plane import PYTORCH, ControlPlane, running
from tests.waiting import wait_until
from voda.manifests.parse import parse

# Kinds of the Prometheus operator, which is not there.
NOT_SERVED = {"ServiceMonitor", "PrometheusRule"}
POLICIES = {
    f"{sort}AdmissionPolicy{part}"
    # Whatever the latter refuses, the former has not changed.
    for sort in ("Mutating", "Validating")
    for part in ("", "Binding")
}


class Right(NamedTuple):
    """A verb on something; of voda's own namespace where `is_at_home`, else of the one in question."""

    verb: str
    resource: str
    """With its subresource: pods/log."""
    group: str = ""
    name: str = ""
    is_at_home: bool = False


JOBS = "kubeflow.org"
ON_JOBS = ("get", "list", "watch", "create", "patch", "delete")
OF_KINDS = {
    "Job": (
        *(Right(verb, "jobs", "batch") for verb in ON_JOBS),
        *(Right(verb, "services") for verb in ("get", "list", "create", "patch")),
    ),
    "MPIJob": (*(Right(verb, "mpijobs", JOBS) for verb in ON_JOBS), Right("delete", "jobs", "batch")),
    "PyTorchJob": (
        *(Right(verb, "pytorchjobs", JOBS) for verb in ON_JOBS),
        Right("patch", "pytorchjobs/scale", JOBS),
    ),
}
OF_JOBSETS = (
    *(Right(verb, "jobsets", "jobset.x-k8s.io") for verb in ON_JOBS),
    *(Right(verb, "trainjobs", "trainer.kubeflow.org") for verb in ("patch", "delete")),
)
"""Of JobSets and of the TrainJobs that they were made of; they need those of Jobs too."""
AT_HOME = (
    Right("create", "leases", "coordination.k8s.io", is_at_home=True),
    *(
        Right(verb, "leases", "coordination.k8s.io", "voda", is_at_home=True)
        for verb in ("get", "list", "watch", "patch")
    ),
)
EVERYWHERE = (
    *AT_HOME,
    *(Right(verb, "nodes") for verb in ("list", "watch")),
    *(Right(verb, "pods") for verb in ("list", "watch")),
    *(Right(verb, "runtimeclasses", "node.k8s.io") for verb in ("list", "watch")),
    *(
        Right(verb, kind, "resource.k8s.io")
        for kind in ("deviceclasses", "devicetaintrules", "resourceslices", "resourceclaims")
        for verb in ("list", "watch")
    ),
    Right("create", "subjectaccessreviews", "authorization.k8s.io"),
    *(Right("get", "namespaces", name=name) for name in ("kube-system", "vision", "speech")),
)
ALWAYS = (
    *EVERYWHERE,
    Right("get", "namespaces"),
    *(Right(verb, "pods") for verb in ("patch", "delete")),
    Right("get", "pods/log"),
    *(Right(verb, "limitranges") for verb in ("list", "watch")),
    *(Right(verb, "events") for verb in ("create", "list")),
    *(Right(verb, "jobstates", "voda.dev") for verb in ("list", "create", "patch")),
    *(Right(verb, "resourceclaimtemplates", "resource.k8s.io") for verb in ("get", "list", "watch", "create", "patch")),
)
NEEDED = (*ALWAYS, *OF_JOBSETS, *(right for rights in OF_KINDS.values() for right in rights))
DENIED = (
    *(Right(verb, "secrets", is_at_home=home) for verb in ("get", "list", "watch", "create") for home in (True, False)),
    *(Right(verb, "configmaps", is_at_home=True) for verb in ("get", "list", "update")),
    *(Right(verb, "pods") for verb in ("create", "update", "deletecollection")),
    *(
        Right("create", f"pods/{way_in}")
        for way_in in ("binding", "exec", "attach", "portforward", "eviction", "ephemeralcontainers")
    ),
    Right("get", "pods/exec"),
    *(Right(verb, "trainjobs", "trainer.kubeflow.org") for verb in ("get", "list", "watch", "create")),
    *(Right(verb, kind) for kind in ("nodes", "namespaces") for verb in ("create", "patch", "update", "delete")),
    Right("get", "nodes/proxy"),
    *(
        Right(verb, kind, "resource.k8s.io")
        for kind in (
            "resourceclaims",
            "resourceclaims/status",
            "resourceslices",
            "deviceclasses",
            "devicetaintrules",
        )
        for verb in ("create", "patch", "delete")
    ),
    *(Right("patch", f"{kind}/status", JOBS) for kind in ("mpijobs", "pytorchjobs")),
    Right("create", "serviceaccounts/token", is_at_home=True),
    *(Right("impersonate", who) for who in ("users", "groups", "serviceaccounts")),
    *(
        Right(verb, kind, "rbac.authorization.k8s.io", is_at_home=True)
        for kind in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
        for verb in ("create", "patch", "bind", "escalate")
    ),
    *(Right(verb, "deployments", "apps", is_at_home=True) for verb in ("get", "patch")),
    *(Right(verb, "leases", "coordination.k8s.io", "another", is_at_home=True) for verb in ("get", "patch")),
    Right("list", "leases", "coordination.k8s.io", is_at_home=True),
    Right("get", "leases", "coordination.k8s.io", "voda"),
    *(
        Right("create", kind, "admissionregistration.k8s.io")
        for kind in ("mutatingwebhookconfigurations", "mutatingadmissionpolicies")
    ),
    *(Right(verb, "services") for verb in ("watch", "delete")),
    Right("patch", "jobs/status", "batch"),
    Right("*", "*", "*"),
)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    plane = running(controllers=False, definitions=[PYTORCH])
    yield plane
    plane.stop()


@pytest.fixture(scope="module")
def unused() -> Iterator[ControlPlane]:
    """One on which nothing is installed, so that nobody else's rights are in the way."""
    plane = running(controllers=False, definitions=[PYTORCH])
    yield plane
    plane.stop()


@pytest.fixture
async def voda(plane: ControlPlane) -> AsyncIterator[Client]:
    """The API server, as voda's ServiceAccount sees it."""
    config = yaml.safe_load(deployed.service_account_kubeconfig(plane).read_text())
    async with Client(plane, config["users"][0]["user"]["token"]) as client:
        yield client


async def answers(client: Client, rights: Collection[Right], namespace: str) -> dict[Right, bool]:
    """Return what the server's own authorizer says of each right in a namespace; empty: in all."""
    said = {}
    for right in rights:
        resource, _, subresource = right.resource.partition("/")
        attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
        attributes |= {"namespace": deployed.NAMESPACE if right.is_at_home else namespace, "name": right.name}
        review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        answer = await client.request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            body={**review, "spec": {"resourceAttributes": attributes}},
        )
        said[right] = bool(answer["status"]["allowed"])
    return said


BINDING = (Right("get", "pods"), Right("create", "pods/binding"))
CLAIMS = (
    *(Right("get", "pods"), Right("patch", "pods/status")),
    *(Right(verb, "resourceclaims", "resource.k8s.io") for verb in ("get", "create", "delete")),
)
NAMESPACES = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("vision", "speech")]


async def rights_of(plane: ControlPlane, *arguments: str, namespaces: Sequence[str] = ("",)) -> list[set[Right]]:
    """Return which of all rights voda has after an install with these flags of Helm, and with nothing else.

    One set for each namespace; empty: all namespaces.
    """
    config = yaml.safe_load(deployed.service_account_kubeconfig(plane, "sqlite", *arguments).read_text())
    try:
        async with Client(plane, config["users"][0]["user"]["token"]) as client:
            asked = {*NEEDED, *DENIED, *BINDING, *CLAIMS}
            said = [await answers(client, asked, namespace) for namespace in namespaces]
            return [{right for right, is_allowed in each.items() if is_allowed} for each in said]
    finally:
        rights = [each for each in deployed.rendered("sqlite", *arguments) if each["kind"] in deployed.RIGHTS]
        deployed.run_kubectl("delete", "-f", "-", plane=plane, stdin=yaml.safe_dump_all(rights))


async def test_service_account_has_the_rights_that_voda_needs_and_no_other(unused: ControlPlane) -> None:
    assert await rights_of(unused) == [{*NEEDED}]


@pytest.mark.parametrize("value", ["hived.enabled", "extender.enabled"])
async def test_value_for_pods_that_voda_schedules_adds_the_right_to_bind_pods(value: str, unused: ControlPlane) -> None:
    assert await rights_of(unused, "--set", f"{value}=true") == [{*NEEDED, *BINDING}]


async def test_value_for_pods_that_claim_parts_of_devices_adds_the_rights_to_their_claims(unused: ControlPlane) -> None:
    assert await rights_of(unused, "--set", "sharedClaims.enabled=true") == [{*NEEDED, *CLAIMS}]


async def test_rights_to_jobs_when_namespaces_are_named_end_there(unused: ControlPlane) -> None:
    deployed.apply(unused, NAMESPACES)
    narrow = ("--set", "settings.cluster.namespaces={vision,speech}")
    told = await rights_of(unused, *narrow, namespaces=["vision", "speech", "default", ""])
    there = {*NEEDED} - {Right("get", "namespaces")}
    assert told == [there, there, {*EVERYWHERE}, {*EVERYWHERE}]


async def test_device_classes_when_there_are_none_leave_no_rights_to_devices_and_claims(unused: ControlPlane) -> None:
    (told,) = await rights_of(unused, "--set-json", "settings.cluster.gpuDeviceClasses=[]")
    assert told == {right for right in NEEDED if right.group != "resource.k8s.io"}


@pytest.mark.parametrize("kind", OF_KINDS)
async def test_kind_when_it_is_the_only_one_brings_its_own_rights_alone(unused: ControlPlane, kind: str) -> None:
    assert await rights_of(unused, "--set", f"kinds={{{kind}}}") == [{*ALWAYS, *OF_KINDS[kind]}]


async def test_jobsets_bring_the_rights_to_them_and_to_trainjobs_beside_those_of_jobs(unused: ControlPlane) -> None:
    rights = await rights_of(unused, "--set", "kinds={Job,JobSet}")
    assert rights == [{*ALWAYS, *OF_KINDS["Job"], *OF_JOBSETS}]


def of_cluster(name: str, plane: ControlPlane) -> list[deployed.Manifest]:
    """Return the manifests of a set of values that this cluster serves."""
    absent = NOT_SERVED | (set() if serves_policies(plane) else POLICIES)
    return [manifest for manifest in deployed.rendered(name) if manifest["kind"] not in absent]


def serves_policies(plane: ControlPlane) -> bool:
    """Say whether the cluster serves MutatingAdmissionPolicy in the version of the chart."""
    served = deployed.run_kubectl("get", "--raw", "/apis/admissionregistration.k8s.io/v1", plane=plane)
    return '"mutatingadmissionpolicies"' in served


@pytest.mark.parametrize("name", deployed.NAMES)
def test_manifests_when_applied_again_change_nothing(plane: ControlPlane, name: str) -> None:
    manifests = of_cluster(name, plane)
    deployed.apply(plane, [deployed.RESTRICTED, *NAMESPACES])
    assert len(deployed.apply(plane, manifests)) == len(manifests)
    versions = deployed.versions(plane, manifests)
    deployed.apply(plane, manifests)
    assert deployed.versions(plane, manifests) == versions


@pytest.mark.parametrize("name", deployed.NAMES)
def test_pods_are_taken_by_a_namespace_that_enforces_the_restricted_standard(plane: ControlPlane, name: str) -> None:
    deployed.apply(plane, [deployed.RESTRICTED])
    made = [each for each in yaml.safe_load_all(deployed.template(name)) if each]
    (deployment,) = [each for each in made if each["kind"] == "Deployment"]
    metadata = {"name": "scheduler", "namespace": deployed.NAMESPACE}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": deployment["spec"]["template"]["spec"]}
    pods = [pod, *(each for each in made if each["kind"] == "Pod")]
    assert len(pods) == 2
    assert len(deployed.apply(plane, pods, "--dry-run=server")) == len(pods)


def test_field_that_is_misspelt_when_applied_is_refused(plane: ControlPlane) -> None:
    manifests = [manifest for manifest in deployed.rendered("sqlite") if manifest["kind"] == "Service"]
    manifests[0]["spec"]["selectors"] = {}
    with pytest.raises(AssertionError, match="selectors"):
        deployed.apply(plane, manifests)


async def test_service_account_when_it_asks_sees_pods_and_no_secrets(voda: Client) -> None:
    assert await voda.list(PODS) == []
    with pytest.raises(Refused, match="403"):
        await voda.list(SECRETS, deployed.NAMESPACE)


@pytest.mark.parametrize(("name", "replicas"), [("sqlite", 1), ("postgresql", 2)])
def test_deployment_when_applied_has_its_pods(name: str, replicas: int) -> None:
    plane = running(controllers=True)
    try:
        deployed.apply(plane, [deployed.RESTRICTED, *of_cluster(name, plane)])
        wait_until(lambda: len(deployed.pods(plane)) >= replicas, lambda: plane.log("kube-controller-manager")[-2000:])
        assert len(deployed.pods(plane)) == replicas
    finally:
        plane.stop()


@pytest.mark.parametrize("example", ["digits.yaml", "digits-cpu.yaml"])
def test_example_when_applied_is_a_job_of_one_to_four_gpus(plane: ControlPlane, example: str) -> None:
    (job,) = yaml.safe_load_all((ROOT / "examples" / "kubernetes" / example).read_text("utf-8"))
    deployed.apply(plane, [{**job, "metadata": {**job["metadata"], "namespace": "default"}}])
    assert job["metadata"]["labels"] == {"voda.dev/managed": "true"}
    assert job["spec"]["runPolicy"]["suspend"] is True
    spec = parse(job).spec
    assert (spec.min_replicas, spec.max_replicas, spec.gpus_per_replica, spec.epochs) == (1, 4, 1, 20)


def test_examples_on_gpus_and_without_differ_in_nothing_else() -> None:
    jobs = [(ROOT / "examples" / "kubernetes" / name).read_text("utf-8") for name in ("digits.yaml", "digits-cpu.yaml")]
    on_gpus, on_cpus = ([line.strip() for line in job.splitlines() if not line.startswith("#")] for job in jobs)
    told = [line for line in ndiff(on_gpus, on_cpus) if line[0] in "+-"]
    assert sorted(told) == [
        '+ cpu: "1"',
        "+ hostPath:",
        "+ path: /tmp/digits",
        "+ requests:",
        "+ type: DirectoryOrCreate",
        "- claimName: digits",
        "- limits:",
        "- nvidia.com/gpu: 1",
        "- persistentVolumeClaim:",
    ]
