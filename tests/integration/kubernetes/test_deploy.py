"""The manifests of deploy/, applied to a real API server, and the rights that they give to voda and to nobody else."""

import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from difflib import ndiff
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.kube import deployed
from tests.kube.assets import ROOT
from tests.kube.client import PODS, SECRETS, Client, Refused
from tests.kube.control_plane import PYTORCH, ControlPlane, running
from tests.waiting import wait_until
from voda.manifests.parse import parse

DEPLOY = ROOT / "deploy"
DOCUMENT = ROOT / "docs" / "install-kubernetes.md"

OVERLAYS = ("overlays/sqlite", "overlays/postgres", "overlays/try")


class Right(NamedTuple):
    """A verb on something; of voda's own namespace where `is_at_home`, else of any."""

    verb: str
    resource: str
    """With its subresource: pods/log."""
    group: str = ""
    name: str = ""
    is_at_home: bool = False


JOBS = "kubeflow.org"
NEEDED = (
    *(Right(verb, "nodes") for verb in ("list", "watch")),
    *(Right(verb, "pods") for verb in ("list", "watch", "patch", "delete")),
    Right("get", "namespaces"),
    Right("get", "pods/log"),
    *(
        Right(verb, kind, JOBS)
        for kind in ("mpijobs", "pytorchjobs")
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
    Right("patch", "pytorchjobs/scale", JOBS),
    Right("delete", "jobs", "batch"),
    Right("create", "events"),
    Right("create", "leases", "coordination.k8s.io", is_at_home=True),
    *(
        Right(verb, "leases", "coordination.k8s.io", "voda", is_at_home=True)
        for verb in ("get", "list", "watch", "patch")
    ),
)
DENIED = (
    *(Right(verb, "secrets", is_at_home=home) for verb in ("get", "list", "watch", "create") for home in (True, False)),
    *(Right(verb, "configmaps", is_at_home=True) for verb in ("get", "list", "update")),
    *(Right(verb, "pods") for verb in ("create", "update", "deletecollection")),
    *(
        Right("create", f"pods/{way_in}")
        for way_in in ("binding", "exec", "attach", "portforward", "eviction", "ephemeralcontainers")
    ),
    Right("get", "pods/exec"),
    *(Right(verb, kind) for kind in ("nodes", "namespaces") for verb in ("create", "patch", "update", "delete")),
    Right("get", "nodes/proxy"),
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
    *(Right("create", kind, "admissionregistration.k8s.io") for kind in ("mutatingwebhookconfigurations",)),
    Right("*", "*", "*"),
)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    plane = running(controllers=False, definitions=[PYTORCH])
    yield plane
    plane.stop()


@pytest.fixture
async def voda(plane: ControlPlane) -> AsyncIterator[Client]:
    """The API server, as voda's ServiceAccount sees it."""
    config = yaml.safe_load(deployed.service_account_kubeconfig(plane).read_text())
    async with Client(plane, config["users"][0]["user"]["token"]) as client:
        yield client


async def answers(client: Client, rights: Sequence[Right]) -> dict[Right, bool]:
    """Return what the server's own authorizer says of each right."""
    said = {}
    for right in rights:
        resource, _, subresource = right.resource.partition("/")
        attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
        attributes |= {"namespace": deployed.NAMESPACE if right.is_at_home else "", "name": right.name}
        review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        answer = await client.request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            body={**review, "spec": {"resourceAttributes": attributes}},
        )
        said[right] = bool(answer["status"]["allowed"])
    return said


EXEC = (Right("get", "pods/exec"), Right("create", "pods/exec"))


@pytest.fixture
def with_exec(tmp_path: Path) -> Sequence[deployed.Manifest]:
    """What kustomize makes of an overlay with the component for commands in pods."""
    root = os.path.relpath(deployed.KUSTOMIZE, tmp_path.resolve())
    kustomization = {"resources": [f"{root}/overlays/sqlite"], "components": [f"{root}/components/exec"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return deployed.rendered(str(tmp_path))


async def test_component_for_commands_in_pods_adds_the_rights_to_them_alone(
    with_exec: Sequence[deployed.Manifest],
) -> None:
    plane = running(controllers=False, definitions=[PYTORCH])
    try:
        token = yaml.safe_load(deployed.service_account_kubeconfig(plane).read_text())["users"][0]["user"]["token"]
        async with Client(plane, token) as client:
            assert not any((await answers(client, EXEC)).values())
            deployed.apply(plane, [each for each in with_exec if each["kind"] in deployed.RIGHTS])
            assert all((await answers(client, (*EXEC, *NEEDED))).values())
            others = [right for right in DENIED if right not in EXEC]
            assert not any((await answers(client, others)).values())
    finally:
        plane.stop()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_when_applied_again_changes_nothing(plane: ControlPlane, overlay: str) -> None:
    manifests = deployed.rendered(overlay)
    assert len(deployed.apply(plane, manifests)) == len(manifests)
    versions = deployed.versions(plane, manifests)
    deployed.apply(plane, manifests)
    assert deployed.versions(plane, manifests) == versions


def test_field_that_is_misspelt_when_applied_is_refused(plane: ControlPlane) -> None:
    manifests = [manifest for manifest in deployed.rendered("base") if manifest["kind"] == "Service"]
    manifests[0]["spec"]["selectors"] = {}
    with pytest.raises(AssertionError, match="selectors"):
        deployed.apply(plane, manifests)


async def test_service_account_has_every_right_that_voda_needs(voda: Client) -> None:
    assert [right for right, is_allowed in (await answers(voda, NEEDED)).items() if not is_allowed] == []


async def test_service_account_has_no_right_beyond(voda: Client) -> None:
    assert [right for right, is_allowed in (await answers(voda, DENIED)).items() if is_allowed] == []


async def test_service_account_when_it_asks_sees_pods_and_no_secrets(voda: Client) -> None:
    assert await voda.list(PODS) == []
    with pytest.raises(Refused, match="403"):
        await voda.list(SECRETS, deployed.NAMESPACE)


@pytest.mark.parametrize(("overlay", "replicas"), [("overlays/sqlite", 1), ("overlays/postgres", 2)])
def test_deployment_when_applied_has_its_pods(overlay: str, replicas: int) -> None:
    plane = running(controllers=True)
    try:
        deployed.apply(plane, deployed.rendered(overlay))
        wait_until(lambda: len(deployed.pods(plane)) >= replicas, lambda: plane.log("kube-controller-manager")[-2000:])
        assert len(deployed.pods(plane)) == replicas
    finally:
        plane.stop()


def test_component_for_the_prometheus_operator_scrapes_the_service_by_its_labels_and_port(tmp_path: Path) -> None:
    root = os.path.relpath(deployed.KUSTOMIZE, tmp_path.resolve())
    kustomization = {
        "resources": [f"{root}/overlays/sqlite"],
        "components": [f"{root}/components/prometheus-operator"],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    made = {manifest["kind"]: manifest for manifest in deployed.rendered(str(tmp_path))}
    service, monitor = made["Service"], made["ServiceMonitor"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert {made[kind]["metadata"]["namespace"] for kind in ("ServiceMonitor", "PrometheusRule", "Service")} == {
        deployed.NAMESPACE
    }


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


def test_kustomization_of_the_documents_changes_settings_and_image(tmp_path: Path) -> None:
    kustomization, settings = re.findall(r"```yaml\n(# my-voda/.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    (tmp_path / "kustomization.yaml").write_text(kustomization.replace("../deploy", os.path.relpath(DEPLOY, tmp_path)))
    (tmp_path / "voda.yaml").write_text(settings)
    made = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in deployed.rendered(str(tmp_path))}
    pod = made["Deployment", "voda"]["spec"]["template"]["spec"]
    named = next(volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"] == "settings")
    assert made["ConfigMap", named]["data"]["voda.yaml"] == settings
    assert {container["image"] for container in (*pod["initContainers"], *pod["containers"])} == {
        "ghcr.io/example/voda:0.1.0"
    }
    assert ("ServiceMonitor", "voda") in made
