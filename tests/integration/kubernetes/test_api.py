"""What the real API server says is understood, call by call."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.kube.control_plane import OUTSIDER, ControlPlane
from tests.telemetry import RecordingTelemetry
from voda.clock import SystemClock
from voda.cluster.kubernetes.objects import NodeObject, Pod
from voda.domain.errors import ClusterUnavailable
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Absent, Conflict, NotServed, Rejected, Unreachable
from voda.kubernetes_client.metadata import PartialObject
from voda.metrics import KUBERNETES_REQUEST_DURATION, KUBERNETES_REQUESTS

NODES = "/api/v1/nodes"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def api(control_plane: ControlPlane) -> AsyncIterator[Api]:
    made = await Api.open(control_plane.kubeconfig())
    yield made
    await made.close()


@pytest.fixture
async def node(api: Api) -> AsyncIterator[NodeObject]:
    yield await api.create(NODES, {"metadata": {"name": "an-api-node"}}, NodeObject)
    await api.delete(f"{NODES}/an-api-node")


@pytest.fixture
async def pod(api: Api, node: NodeObject) -> AsyncIterator[Pod]:
    spec = {"containers": [{"name": "main", "image": "work"}], "schedulerName": "voda"}
    yield await api.create(PODS, {"metadata": {"name": "an-api-pod"}, "spec": spec}, Pod)
    await api.delete(f"{PODS}/an-api-pod", grace_s=0)


@pytest.fixture
async def kept(api: Api) -> AsyncIterator[dict[str, Any]]:
    yield await api.create(MAPS, {"metadata": {"name": "kept"}, "data": {"one": "1", "two": "2"}}, dict)
    await api.delete(f"{MAPS}/kept")


async def test_time_of_the_server_is_known_by_its_answers(api: Api) -> None:
    await api.get("/version", dict)
    # A machine that stands still between the two is no other clock.
    assert abs((api.server_time or 0.0) - SystemClock().now()) < 30.0


async def test_patch_when_a_field_is_null_removes_it(api: Api, kept: dict[str, Any]) -> None:
    changed = await api.patch(f"{MAPS}/kept", {"data": {"one": None}}, dict)
    assert changed is not None
    assert changed["data"] == {"two": "2"}
    assert await api.get(f"{MAPS}/kept", dict) == changed


async def test_patch_when_its_version_is_not_the_newest_conflicts(api: Api, kept: dict[str, Any]) -> None:
    old = {"metadata": {"resourceVersion": kept["metadata"]["resourceVersion"]}}
    await api.patch(f"{MAPS}/kept", {**old, "data": {"one": "11"}}, dict)
    with pytest.raises(Conflict, match="cannot patch /api/v1/namespaces/default/configmaps/kept: the API server"):
        await api.patch(f"{MAPS}/kept", {**old, "data": {"one": "12"}}, dict)


async def test_create_when_the_name_is_taken_conflicts(api: Api, kept: dict[str, Any]) -> None:
    with pytest.raises(Conflict, match='configmaps "kept" already exists'):
        await api.create(MAPS, {"metadata": {"name": "kept"}}, dict)


async def test_delete_when_the_uid_is_another_conflicts_and_deletes_nothing(api: Api, kept: dict[str, Any]) -> None:
    with pytest.raises(Conflict):
        await api.delete(f"{MAPS}/kept", uid="another")
    assert await api.get(f"{MAPS}/kept", dict) == kept
    assert await api.delete(f"{MAPS}/kept", uid=kept["metadata"]["uid"])


async def test_whatever_is_asked_of_an_object_that_is_not_there_is_told_as_none(api: Api) -> None:
    assert await api.get(f"{NODES}/nobody", NodeObject) is None
    assert await api.patch(f"{NODES}/nobody", {"metadata": {"labels": {}}}, NodeObject) is None
    assert await api.delete(f"{NODES}/nobody") is False


async def test_a_kind_that_is_not_served_is_not_taken_for_an_object_that_is_gone(api: Api) -> None:
    path = "/apis/kubeflow.org/v3/namespaces/default/mpijobs/digits"
    for asked in (api.get(path, dict), api.patch(path, {}, dict), api.delete(path)):
        with pytest.raises(NotServed, match="404"):
            await asked
    assert await api.get("/apis/kubeflow.org/v3", dict) is None
    assert await api.get("/apis/nobody.example", dict) is None


async def test_a_pod_when_bound_is_on_its_node_and_cannot_be_bound_again(api: Api, pod: Pod) -> None:
    body = {"metadata": {"name": "an-api-pod"}, "target": {"kind": "Node", "name": "an-api-node"}}
    await api.create(f"{PODS}/an-api-pod/binding", body, dict)
    bound = await api.get(f"{PODS}/an-api-pod", Pod)
    assert bound is not None
    assert bound.spec.node_name == "an-api-node"
    with pytest.raises(Conflict):
        await api.create(f"{PODS}/an-api-pod/binding", body, dict)
    with pytest.raises(Absent):
        await api.create(f"{PODS}/nobody/binding", {**body, "metadata": {"name": "nobody"}}, dict)


async def test_a_log_is_empty_of_a_pod_that_runs_nowhere_and_refused_of_none(api: Api, pod: Pod) -> None:
    assert [piece async for piece in api.text(f"{PODS}/an-api-pod/log")] == []
    with pytest.raises(Absent, match='pods "nobody" not found'):
        async for _ in api.text(f"{PODS}/nobody/log"):
            pass


async def test_an_invalid_object_is_refused_with_what_the_server_says_of_it(api: Api) -> None:
    with pytest.raises(Rejected, match="cannot create /api/v1/nodes: the API server answers 422 Invalid") as refused:
        await api.create(NODES, {"metadata": {"name": "Not A Name"}}, NodeObject)
    assert refused.value.code == 422
    assert "\n" not in str(refused.value)


async def test_a_list_when_it_has_more_than_one_page_is_whole(api: Api) -> None:
    space = {"metadata": {"name": "pages"}}
    await api.create("/api/v1/namespaces", space, dict)
    path = "/api/v1/namespaces/pages/configmaps"
    names = {f"map-{number}" for number in range(510)}
    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(api.create(path, {"metadata": {"name": name}}, PartialObject))
    listed = await api.list(path, PartialObject)
    assert {each.metadata.name for each in listed.items if each.metadata.name in names} == names
    assert int(listed.resource_version) >= max(int(each.metadata.resource_version) for each in listed.items)
    await api.delete("/api/v1/namespaces/pages")


async def test_a_watch_yields_what_happens_after_a_list_and_ends_when_agreed(api: Api) -> None:
    listed = await api.list(MAPS, PartialObject)
    made = await api.create(MAPS, {"metadata": {"name": "watched"}}, PartialObject)
    await api.patch(f"{MAPS}/watched", {"data": {"key": "value"}}, PartialObject)
    await api.delete(f"{MAPS}/watched")
    seen = [
        change
        async for change in api.watch(MAPS, PartialObject, after=listed.resource_version, query={"timeoutSeconds": "1"})
        if change.type == "BOOKMARK" or change.object.metadata.name == "watched"
    ]
    assert [change.type for change in seen][:3] == ["ADDED", "MODIFIED", "DELETED"]
    assert seen[0].object == made
    assert seen[0].resource_version == made.metadata.resource_version


async def test_a_watch_brings_an_object_as_large_as_the_server_keeps(api: Api) -> None:
    listed = await api.list(MAPS, PartialObject)
    await api.create(MAPS, {"metadata": {"name": "large"}, "data": {"key": "x" * 1_000_000}}, PartialObject)
    async for change in api.watch(MAPS, dict, after=listed.resource_version):
        if change.object["metadata"]["name"] == "large":
            assert len(change.object["data"]["key"]) == 1_000_000
            break
    await api.delete(f"{MAPS}/large")


async def test_whoever_has_no_rights_is_told_which_are_missing(control_plane: ControlPlane) -> None:
    api = await Api.open(control_plane.kubeconfig(OUTSIDER, "outsider"))
    with pytest.raises(Rejected, match='"outsider" cannot list resource "nodes"') as refused:
        await api.list(NODES, NodeObject)
    assert refused.value.code == 403
    await api.close()


async def test_a_token_that_is_not_known_may_be_renewed_and_is_never_told(control_plane: ControlPlane) -> None:
    api = await Api.open(control_plane.kubeconfig("a-stale-token", "stale"))
    with pytest.raises(ClusterUnavailable, match="401") as refused:
        await api.list(NODES, NodeObject)
    assert "a-stale-token" not in str(refused.value)
    await api.close()


async def test_a_server_whose_certificate_is_anothers_is_not_spoken_to(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    text = control_plane.kubeconfig().read_text().replace(f"certificate-authority: {control_plane.certificate}", "")
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    api = await Api.open(path, timeout_s=30.0)
    with pytest.raises(Unreachable, match="certificate"):
        await api.get("/version", dict)
    await api.close()


async def test_every_request_is_counted_by_verb_and_answer(control_plane: ControlPlane) -> None:
    telemetry = RecordingTelemetry()
    api = await Api.open(control_plane.kubeconfig(), telemetry=telemetry)
    await api.get(f"{NODES}/nobody", NodeObject)
    await api.list(NODES, NodeObject)
    await api.close()
    assert telemetry.counts(KUBERNETES_REQUESTS) == [("get", "404"), ("list", "200")]
    assert telemetry.spans(KUBERNETES_REQUEST_DURATION) == [("get",), ("list",)]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_closing_leaves_no_connection_of_requests_that_were_cancelled(
    control_plane: ControlPlane, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def cancel_requests(after_s: float) -> set[str]:
        before = _own_sockets()
        api = await Api.open(control_plane.kubeconfig())
        requests = [asyncio.create_task(api.get(PODS, dict)) for _ in range(5)]
        await asyncio.wait(requests, timeout=after_s)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        await api.close()
        return _own_sockets() - before

    for step in range(20):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            assert not runner.run(cancel_requests(0.004 * step))


def _own_sockets() -> set[str]:
    links = (os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    return {link for link in links if link.startswith("socket:")}
