"""What the levels of Pod Security say of a template; tests of clusters compare them with the API server."""

from typing import Any

import pytest

from tests.kube.drawn_pods import a_harmless_template
from voda.operator.authorization.pod_security import Level, violations

AT = "spec.template"
CONTAINER = f"{AT}.spec.containers[0]"


def a_template(**of_container: Any) -> dict[str, Any]:
    """Return a harmless template with other fields of its container."""
    template = a_harmless_template()
    template["spec"]["containers"][0] |= of_container
    return template


def forbidden(template: dict[str, Any], level: Level) -> dict[str, str]:
    """Return field -> message."""
    return {each.field: each.message for each in violations(template, AT, level)}


def test_harmless_template_is_let_pass_by_all_levels() -> None:
    levels: list[Level] = ["privileged", "baseline", "restricted"]
    assert [forbidden(a_template(), level) for level in levels] == [{}, {}, {}]


def test_restricted_names_each_field_that_a_bare_template_lacks() -> None:
    bare = {"spec": {"containers": [{"name": "a", "image": "train"}]}}
    context = f"{CONTAINER}.securityContext"
    assert forbidden(bare, "baseline") == {}
    assert forbidden(bare, "restricted") == {
        f"{context}.runAsNonRoot": "expected true, got nothing",
        f"{context}.allowPrivilegeEscalation": "expected false, got nothing",
        f"{context}.seccompProfile.type": "expected RuntimeDefault or Localhost, here or of the pod, got nothing",
        f"{context}.capabilities.drop": "expected [ALL], got nothing",
    }


def test_privileged_allows_all() -> None:
    assert forbidden({"spec": {"containers": [], "hostPID": True}}, "privileged") == {}


@pytest.mark.parametrize("field", ["containers", "initContainers", "ephemeralContainers"])
def test_containers_of_all_sorts_count(field: str) -> None:
    template = a_template()
    template["spec"][field] = [{"name": "a", "securityContext": {"privileged": True}}]
    at = f"{AT}.spec.{field}[0].securityContext.privileged"
    assert forbidden(template, "baseline") == {at: "expected nothing or false, got true"}


@pytest.mark.parametrize("value", ["true", 1, [True], {"a": 1}])
def test_value_of_another_type_is_not_let_pass(value: Any) -> None:
    template = a_template()
    template["spec"]["hostNetwork"] = value
    template["spec"]["volumes"] = {"hostPath": {"path": "/"}}
    assert {*forbidden(template, "baseline")} == {f"{AT}.spec.hostNetwork", f"{AT}.spec.volumes[0].hostPath"}


@pytest.mark.parametrize("containers", ["a", 1, {"name": "a"}, ["a", 3]])
def test_containers_that_are_none_are_not_let_pass_by_restricted(containers: Any) -> None:
    assert forbidden({"spec": {"containers": containers}}, "restricted")
