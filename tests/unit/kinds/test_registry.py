"""Every kind is complete, and voda may do with its objects what it has to."""

from pathlib import Path

import pytest
import yaml

from voda.cluster.kubernetes.kinds.served_kinds import KINDS as ADAPTERS
from voda.kinds.base import JobManifest
from voda.kinds.registry import KINDS

RENDERED = Path(__file__).parents[2] / "kube" / "chart" / "sqlite.yaml"
"""What Helm renders of the chart."""


@pytest.mark.parametrize("kind", KINDS.values())
def test_roles_of_a_kind_are_among_its_names(kind: type[JobManifest]) -> None:
    assert kind.placed_roles
    assert {*kind.placed_roles, *kind.local_roles} <= set(kind.role_names)
    assert bool(kind.local_roles) == (kind.local_launch is not None)


@pytest.mark.parametrize("kind", KINDS.values())
def test_every_version_of_a_kind_has_an_adapter_to_kubernetes(kind: type[JobManifest]) -> None:
    assert {each.api_version for each in ADAPTERS if each.kind is kind} == set(kind.versions)


@pytest.mark.parametrize("kind", KINDS.values())
def test_cluster_role_names_every_kind(kind: type[JobManifest]) -> None:
    made = yaml.safe_load_all(RENDERED.read_text("utf-8"))
    rules = [rule for each in made if each["kind"] == "ClusterRole" for rule in each["rules"]]
    groups = {version.partition("/")[0] for version in kind.versions}
    of_jobs = [rule["resources"] for rule in rules if "create" in rule["verbs"] and {*rule["apiGroups"]} == groups]
    assert [kind.plural] in of_jobs
