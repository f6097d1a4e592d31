"""The chart on a real API server, by the real Helm: install, upgrade, rollback, uninstall, and what Jobs become."""

import base64
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube import deployed
from tests.kube.control_plane import ControlPlane, running
from tests.kube.deployed import CHART, NAMESPACE
from tests.waiting import wait_until

GATE = "voda.dev/placement"
TO_POSTGRESQL = ("--set", "log.store=postgresql,log.url=postgresql://voda@db/voda,settings.jobsPerUser=5")


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    plane = running(controllers=False)
    deployed.apply(plane, [deployed.RESTRICTED])
    yield plane
    plane.stop()


def helm(plane: ControlPlane, command: str, *arguments: str, namespace: str = NAMESPACE) -> str:
    done = deployed.helm(command, "voda", *arguments, plane=plane, namespace=namespace)
    assert done.returncode == 0, done.stderr
    # Pod Security would warn of a pod that it refuses.
    assert "would violate" not in done.stderr
    return done.stdout


def install(plane: ControlPlane, command: str, *arguments: str, namespace: str = NAMESPACE) -> str:
    repository = "image.repository=registry.example.com/voda"
    return helm(plane, command, str(CHART), "--set", repository, *arguments, namespace=namespace)


def found(plane: ControlPlane, kind: str, name: str) -> dict[str, Any]:
    said = deployed.run_kubectl("get", kind, name, "-n", NAMESPACE, "-o", "json", "--ignore-not-found", plane=plane)
    return dict(json.loads(said or "{}"))


def tokens(plane: ControlPlane) -> Mapping[str, str]:
    data = found(plane, "secret", "voda-access")["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def installed(plane: ControlPlane) -> tuple[int, str, str]:
    """Return the replicas of the Deployment, its strategy and the sort of volume on which its home is."""
    spec = found(plane, "deployment", "voda")["spec"]
    (home,) = [volume for volume in spec["template"]["spec"]["volumes"] if volume["name"] == "home"]
    (sort,) = set(home) - {"name"}
    return spec["replicas"], spec["strategy"]["type"], sort


def test_installation_when_upgraded_rolled_back_and_made_again_keeps_its_tokens_and_its_log(
    plane: ControlPlane,
) -> None:
    notes = install(plane, "install")
    assert "voda submit --image IMAGE" in notes
    assert installed(plane) == (1, "Recreate", "persistentVolumeClaim")
    made = tokens(plane)
    assert {name: len(value) >= 32 for name, value in made.items()} == {"secret": True, "admin.token": True}

    of_users = base64.b64encode(b'{"tokens": []}').decode()
    patch = json.dumps({"data": {"tokens.json": of_users}})
    deployed.run_kubectl("patch", "secret", "voda-access", "-n", NAMESPACE, "-p", patch, plane=plane)
    kept = {**made, "tokens.json": '{"tokens": []}'}

    install(plane, "upgrade", *TO_POSTGRESQL)
    assert installed(plane) == (2, "RollingUpdate", "emptyDir")
    assert tokens(plane) == kept

    helm(plane, "rollback", "1")
    assert installed(plane) == (1, "Recreate", "persistentVolumeClaim")
    assert tokens(plane) == kept
    assert found(plane, "secret", "voda-log") == {}

    helm(plane, "uninstall")
    assert found(plane, "deployment", "voda") == {}
    assert found(plane, "pvc", "voda-home")["metadata"]["name"] == "voda-home"
    install(plane, "install")
    assert tokens(plane) == kept


def test_release_of_the_same_name_in_another_namespace_installs_beside_it_and_outlives_it(plane: ControlPlane) -> None:
    kinds = ("clusterroles", "clusterrolebindings", "mutatingadmissionpolicies")
    deployed.apply(plane, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "another"}}])
    install(plane, "install")
    install(plane, "install", "--set", "hived.enabled=true", namespace="another")
    install(plane, "upgrade", namespace="another")
    helm(plane, "uninstall")
    served = [
        kind for kind in kinds if deployed.run_kubectl("api-resources", "-o", "name", plane=plane).find(kind) >= 0
    ]
    left = deployed.run_kubectl("get", ",".join(served), "-o", "name", plane=plane).split()
    ours = sorted(name.partition("/")[2] for name in left if "voda" in name)
    policies = ["jobs.voda.another"] * ("mutatingadmissionpolicies" in served)
    assert ours == sorted(["voda.another", "jobs.voda.another"] * 2 + policies)
    assert deployed.run_kubectl("get", "jobstates", plane=plane) == ""


def older(folder: Path) -> Path:
    """Return a copy of the chart whose JobStates have no short name yet."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    definition = chart / "files" / "job-states.yaml"
    text = definition.read_text("utf-8")
    definition.write_text(text.replace("    shortNames: [vj]\n", ""), "utf-8")
    assert definition.read_text("utf-8") != text
    return chart


def test_definition_of_a_release_that_is_gone_is_taken_over_by_what_the_next_one_says(
    plane: ControlPlane, tmp_path: Path
) -> None:
    def short_names() -> list[str]:
        return list(found(plane, "crd", "jobstates.voda.dev")["spec"]["names"].get("shortNames", ()))

    deployed.apply(plane, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "another"}}])
    repository = "image.repository=registry.example.com/voda"
    notes = helm(plane, "install", str(older(tmp_path)), "--set", repository)
    assert "The definition of JobStates" not in notes
    helm(plane, "uninstall")

    notes = install(plane, "install", namespace="another")
    assert f"The definition of JobStates belongs to release voda in namespace {NAMESPACE}, so upgrades" in notes
    assert short_names() == []
    commands = [line.split()[1:] for line in notes.splitlines() if "--overwrite crd" in line]
    assert [words[0] for words in commands] == ["annotate", "label"]
    for words in commands:
        deployed.run_kubectl(*words, plane=plane)
    notes = install(plane, "upgrade", namespace="another")
    assert "The definition of JobStates" not in notes
    assert short_names() == ["vj"]


def test_network_policy_lets_voda_reach_the_ports_on_which_the_api_server_listens(plane: ControlPlane) -> None:
    there = {"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"name": "x", "port": 8443}]}
    metadata = {"name": "kubernetes", "namespace": "default"}
    endpoints = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, **there}
    deployed.run_kubectl("delete", "endpointslices/kubernetes", "-n", "default", "--ignore-not-found", plane=plane)
    deployed.apply(plane, [endpoints])
    install(plane, "install")
    of_api = found(plane, "networkpolicy", "voda")["spec"]["egress"][1]["ports"]
    assert [each["port"] for each in of_api] == [443, 6443, 8443]


def a_job(name: str, **metadata: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"completionMode": "Indexed", "parallelism": 2, "completions": 2, "template": {"spec": pod}},
    }


def created(plane: ControlPlane, job: dict[str, Any]) -> tuple[bool, list[str]]:
    """Return whether a Job would begin suspended, and its pods' gates."""
    text = yaml.safe_dump(job)
    spec = json.loads(
        deployed.run_kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", plane=plane, stdin=text)
    )["spec"]
    return spec["suspend"], [gate["name"] for gate in spec["template"]["spec"].get("schedulingGates", ())]


def test_job_with_the_label_when_created_begins_suspended_and_gated_and_no_other_does(plane: ControlPlane) -> None:
    served = deployed.run_kubectl("get", "--raw", "/apis/admissionregistration.k8s.io/v1", plane=plane)
    if '"mutatingadmissionpolicies"' not in served:
        # 1.35 has it in no version that the chart writes: auto leaves it out.
        install(plane, "install")
        assert "MutatingAdmissionPolicy" not in deployed.helm("get", "manifest", "voda", plane=plane).stdout
        return
    install(plane, "install")
    managed = {"voda.dev/managed": "true"}
    # The API server takes a new policy into account within some seconds.
    wait_until(lambda: created(plane, a_job("first", labels=managed)) == (True, [GATE]))
    waiting = a_job("waiting", labels=managed)
    waiting["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    is_suspended, gates = created(plane, waiting)
    assert (is_suspended, sorted(gates)) == (True, ["example.com/wait", GATE])

    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u", "controller": True}
    assert created(plane, a_job("of-cron", labels=managed, ownerReferences=[cron])) == (True, [GATE])
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "u", "controller": True}
    of_another = a_job("of-another", labels=managed)
    of_another["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    for job in (
        a_job("plain"),
        a_job("of-kueue", labels={**managed, "kueue.x-k8s.io/queue-name": "q"}),
        a_job("owned", labels=managed, ownerReferences=[owner]),
        of_another,
    ):
        assert created(plane, job) == (False, []), job["metadata"]["name"]
