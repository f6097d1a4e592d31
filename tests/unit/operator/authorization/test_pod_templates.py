"""Where the templates of an object are, and which service accounts and Secrets their pods would use."""

from typing import Any

import pytest

from tests.kube.objects import a_jobset, a_pytorchjob, an_indexed_job, an_mpijob
from voda.operator.authorization.pod_templates import pod_templates, secrets, service_accounts


@pytest.mark.parametrize(
    ("job", "paths"),
    [
        (an_indexed_job("a", "n"), ["spec.template"]),
        (an_mpijob("a", "n"), [f"spec.mpiReplicaSpecs.{role}.template" for role in ("Launcher", "Worker")]),
        (a_pytorchjob("a", "n", masters=1), [f"spec.pytorchReplicaSpecs.{r}.template" for r in ("Master", "Worker")]),
        (a_jobset("a", "n"), ["spec.replicatedJobs[0].template.spec.template"]),
    ],
)
def test_templates_of_each_kind_are_found(job: dict[str, Any], paths: list[str]) -> None:
    assert sorted(path for path, _ in pod_templates(job)) == paths


def test_template_of_a_role_that_nobody_knows_is_found() -> None:
    job = an_mpijob("a", "n")
    job["spec"]["mpiReplicaSpecs"]["Other"] = {"template": {"spec": {"containers": []}}}
    assert "spec.mpiReplicaSpecs.Other.template" in {path for path, _ in pod_templates(job)}


@pytest.mark.parametrize(
    "part",
    [
        {"volumes": [{"name": "a", "secret": {"secretName": "mine"}}]},
        {"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": "mine"}}]}}]},
        {"volumes": [{"name": "a", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "mine"}}}]},
        {"volumes": [{"name": "a", "azureFile": {"secretName": "mine", "shareName": "s"}}]},
        {"volumes": [{"name": "a", "cephfs": {"monitors": [], "secretRef": {"name": "mine"}}}]},
        {"imagePullSecrets": [{"name": "mine"}]},
        {"containers": [{"envFrom": [{"prefix": "A", "secretRef": {"name": "mine"}}]}]},
        {"initContainers": [{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "k"}}}]}]},
        {"ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "mine"}}]}]},
    ],
)
def test_secret_is_found_wherever_a_pod_names_it(part: dict[str, Any]) -> None:
    assert secrets({"spec": part}) == {"mine"}


def test_what_only_sounds_like_a_secret_is_none() -> None:
    spec = {"nodeSelector": {"secret": "a"}, "volumes": [{"name": "secret", "emptyDir": {}}]}
    assert (
        secrets({"spec": {**spec, "containers": [{"name": "secret", "env": [{"name": "SECRET", "value": "x"}]}]}})
        == set()
    )


def test_service_accounts_are_all_but_the_namespaces_own() -> None:
    assert service_accounts({"spec": {"serviceAccountName": "default"}}) == set()
    assert service_accounts({"spec": {}}) == set()
    assert service_accounts({"spec": {"serviceAccountName": "a", "serviceAccount": "b"}}) == {"a", "b"}
