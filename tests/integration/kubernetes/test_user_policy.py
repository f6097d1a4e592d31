"""Whose an object is, as the chart's admission policy sees it, on a real API server."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.kube import client, deployed
from tests.kube.client import Client, Object, Refused
from tests.kube.control_plane import JOBSET, MPI_V2, OUTSIDER, PYTORCH, ControlPlane, running
from tests.kube.objects import a_jobset, a_pytorchjob, an_indexed_job, an_mpijob
from tests.waiting import until_it_is

NAMESPACE = "vision"
USER = "voda.dev/user"
EDITORS: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "outsider", "namespace": NAMESPACE},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jobs"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "outsider"}],
}
JOBS_ROLE: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "jobs"},
    "rules": [{"apiGroups": ["batch", "jobset.x-k8s.io", "kubeflow.org"], "resources": ["*"], "verbs": ["*"]}],
}


def policies(*arguments: str) -> list[Object]:
    """Return the policy of the chart and its binding."""
    made = deployed.rendered("sqlite", *arguments)
    return [each for each in made if each["kind"].startswith("ValidatingAdmissionPolicy")]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    plane = running(controllers=False, definitions=[MPI_V2, PYTORCH, JOBSET])
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    deployed.apply(plane, [namespace, JOBS_ROLE, EDITORS])
    yield plane
    plane.stop()


@pytest.fixture
async def outsider(plane: ControlPlane) -> AsyncIterator[Client]:
    """The API server, as the user `outsider` sees it, who may do what they like with jobs of one namespace."""
    deployed.apply(plane, policies())
    async with Client(plane, OUTSIDER) as made:
        await until_it_is(lambda: is_refused(made, a_job("probe", "somebody-else"), dry=True))
        yield made


def a_job(name: str, user: str | None = None) -> Object:
    """Return an Indexed Job whose annotation names a user."""
    return an_indexed_job(name, NAMESPACE, suspend=True, annotations={} if user is None else {USER: user})


async def is_refused(who: Client, job: Object, *, dry: bool = False) -> bool:
    """Say whether an object is not taken for whom it names; where it is, it is there."""
    try:
        await who.request("POST", path_of(job), body=job, query={"dryRun": "All"} if dry else {})
    except Refused as refused:
        if "expected the user who writes it, outsider" not in refused.message:
            raise
        return True
    return False


def path_of(job: Object) -> str:
    """Return where objects of a job's kind are created."""
    plural = f"{job['kind'].lower()}s"
    return client.Resource(job["kind"], job["apiVersion"], plural).path(NAMESPACE)


def a_whole_jobset(*given: Any, **named: Any) -> Object:
    """Return a JobSet as its webhook would complete it."""
    return a_jobset(*given, **named, job={"podFailurePolicy": None})


@pytest.mark.parametrize("make", [an_indexed_job, an_mpijob, a_pytorchjob, a_whole_jobset])
async def test_object_of_each_kind_names_nobody_but_who_makes_it(outsider: Client, make: Any) -> None:
    for user, expected in (("alice", True), ("outsider", False), ("", True), ("Outsider", True)):
        job = make("digits", NAMESPACE, suspend=True, annotations={USER: user})
        assert await is_refused(outsider, job, dry=True) is expected, user
    assert not await is_refused(outsider, make("digits", NAMESPACE, suspend=True), dry=True)


async def test_annotation_is_refused_without_the_label_and_when_it_is_written_later(outsider: Client) -> None:
    bare = a_job("bare", "alice")
    del bare["metadata"]["labels"]
    assert await is_refused(outsider, bare)
    await outsider.create(client.JOBS, a_job("late"))
    note = {"metadata": {"annotations": {USER: "alice"}}}
    for subresource in ("", "status"):
        with pytest.raises(Refused, match="expected the user who writes it"):
            await outsider.patch(client.JOBS, (NAMESPACE, "late"), note, subresource)
    assert USER not in (await outsider.get(client.JOBS, "late", NAMESPACE))["metadata"].get("annotations", {})


async def test_whoever_else_changes_an_object_keeps_the_name_or_takes_it_away(
    plane: ControlPlane, outsider: Client
) -> None:
    await outsider.create(client.JOBS, a_job("mine", "outsider"))
    async with Client(plane) as admin:
        await admin.patch(client.JOBS, (NAMESPACE, "mine"), {"metadata": {"annotations": {"voda.dev/job-id": "a"}}})
        with pytest.raises(Refused, match="expected the user who writes it, admin"):
            await admin.patch(client.JOBS, (NAMESPACE, "mine"), {"metadata": {"annotations": {USER: "alice"}}})
        await admin.patch(client.JOBS, (NAMESPACE, "mine"), {"metadata": {"annotations": {USER: None}}})
        assert USER not in (await admin.get(client.JOBS, "mine", NAMESPACE))["metadata"]["annotations"]


async def test_prefix_of_kubernetes_names_is_left_out_of_the_annotation(plane: ControlPlane, outsider: Client) -> None:
    deployed.apply(plane, policies("--set", "settings.cluster.userPrefix=out"))
    await until_it_is(lambda: is_refused(outsider, a_job("probe", "outsider"), dry=True))
    assert not await is_refused(outsider, a_job("short", "sider"), dry=True)
