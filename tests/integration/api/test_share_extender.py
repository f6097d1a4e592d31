"""kube-scheduler's extender for shared GPUs over HTTP: every verb, who may call, and whatever else may come."""

import base64
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.builders import a_node
from tests.kube.client import PODS, Object
from tests.kube.memory_api import MemoryApi
from tests.kube.memory_server import MemoryServer
from tests.kube.sharing import CORE, MEMORY, a_sharing_pod, gpus_of
from tests.service import START, Answer, Service, a_backend, a_service
from voda import __version__
from voda.api.listener import serving
from voda.api.server import application
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.pod_binding import PodBinding
from voda.cluster.kubernetes.state.shared_gpus import SHARE_RESOURCES
from voda.cluster.kubernetes.state.sharing_pods import GpuPods
from voda.domain.gpus import GpuDevice
from voda.events.types import NodeJoined, ShareAssigned
from voda.operator.extender import Extender
from voda.operator.pod_ports import PodPorts
from voda.operator.sharing.share_extender import ShareExtender
from voda.sharing.rating.gpu_chooser import GpuChooser
from voda.sharing.rating.raters import RATERS
from voda.wire.base import Problem

GPU = GpuDevice(memory_mib=16_000)
ALIAS = "elasticgpu.com/gpu-core"


class Extended(Service):
    """A service that extends kube-scheduler, on a cluster in memory with node n1 of two GPUs, and n2 without any."""

    server: MemoryServer
    shares: ShareExtender

    async def pod(self, name: str = "a", core: int = 50, memory: int = 0, **changes: Any) -> Object:
        """Create a pod, and return it as kube-scheduler sees it."""
        body = a_sharing_pod(name, "ns", core, memory, **changes)
        return self.server.answer("POST", PODS.path("ns"), {}, body)

    async def verb(self, verb: str, body: Any, **headers: Any) -> Answer:
        """Ask for a verb."""
        return await self.ask("POST", f"/scheduler/{verb}", body=body, **headers)

    async def filter(self, pod: Object, *names: str) -> Any:
        """Return the answer to filter."""
        answer = await self.verb("filter", {"Pod": pod, "Nodes": None, "NodeNames": names or ("n1", "n2")})
        assert answer.status == 200
        return answer.json()

    async def bind(self, pod: Object, node: str = "n1", **changes: Any) -> str:
        """Bind a pod, and return the error."""
        meta = pod["metadata"]
        named = {"PodName": meta["name"], "PodNamespace": "ns", "PodUID": meta["uid"], "Node": node, **changes}
        answer = await self.verb("bind", named)
        assert answer.status == 200
        return str(answer.json()["Error"])

    async def assigned(self) -> list[str]:
        """Return the pods that the log gave GPUs, in order."""
        events = await self.backend.journal.store.read(0, 1_000)
        return [event.data.pod for event in events if isinstance(event.data, ShareAssigned)]


@asynccontextmanager
async def an_extended_service(access: Authenticator | None = None) -> AsyncIterator[Extended]:
    server = MemoryServer(lambda: START, [])
    async with a_backend(nodes={"n2": 4}, access=access) as backend:
        shares = ShareExtender(
            journal=backend.journal,
            binding=PodBinding(MemoryApi(server)),
            pods=GpuPods(SHARE_RESOURCES),
            chooser=GpuChooser(RATERS["binpack"]),
            is_synced=lambda: True,
        )
        app = application(replace(backend, pods=PodPorts(shares=Extender(shares))))
        async with (
            serving(app, "127.0.0.1", 0, limits=backend.limits) as url,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
        ):
            service = Extended(backend, url, session)
            object.__setattr__(service, "server", server)
            object.__setattr__(service, "shares", shares)
            await service.happens(NodeJoined(node=a_node("n1", devices=(GPU, GPU))))
            yield service


async def test_verbs_when_asked_in_order_bind_a_pod_to_the_fullest_gpu() -> None:
    async with an_extended_service() as service:
        for name, gpu in (("a", "0"), ("b", "0"), ("c", "1")):
            pod = await service.pod(name, 50, 4_000)
            found = await service.filter(pod)
            assert found == {
                "NodeNames": ["n1"],
                "FailedNodes": {},
                "FailedAndUnresolvableNodes": {"n2": "the node has no GPUs to share"},
                "Error": "",
            }
            scores = await service.verb("priorities", {"Pod": pod, "NodeNames": ["n1", "n2"]})
            assert scores.json() == [{"Host": "n1", "Score": 10}, {"Host": "n2", "Score": 0}]
            assert await service.bind(pod) == ""
            now = service.server.answer("GET", PODS.path("ns", name), {}, None)
            assert (now["spec"]["nodeName"], gpus_of(now)) == ("n1", {"main": gpu})
        assert await service.assigned() == ["ns/a", "ns/b", "ns/c"]
        status = (await service.ask("GET", "/scheduler/status")).json()
        free, half = (
            {"CoreAvailable": core, "MemoryAvailable": memory, "CoreTotal": 100, "MemoryTotal": 16_000}
            for core, memory in ((0, 8_000), (50, 12_000))
        )
        assert msgspec.json.decode(status[CORE]) == {"n1": [free, half]}
        assert (await service.ask("GET", "/version")).body.decode() == __version__


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"core": 150}, "container main: gpu-core is 150, expected less than 100 or a multiple of it"),
        (
            {"containers": {"main": {CORE: "30", ALIAS: "30"}}},
            f"it asks for {CORE} and for {ALIAS}, expected one of them",
        ),
        ({"containers": {"main": {"example.com/gpu-core": "30"}}}, "pod ns/a asks for no GPUs: expected some of"),
        ({"containers": {"main": {CORE: "0.5"}}}, f"{CORE} is 0.5, expected a whole number from 0"),
        ({"containers": {"main": {CORE: "-5"}}}, f"{CORE} is -5, expected a whole number from 0"),
        ({"containers": {"main": {CORE: "many"}}}, "many"),
        ({"containers": {"n" * 54: {CORE: "30"}}}, "has 54 characters, expected at most 53"),
        ({"spec": {"nodeName": "n1"}}, "pod ns/a names node n1 itself"),
        (
            {"spec": {"initContainers": [{"name": "setup", "resources": {"limits": {CORE: "10"}}}]}},
            f"init container setup asks for {CORE}, expected containers alone to ask",
        ),
    ],
)
async def test_pod_that_asks_for_what_cannot_be_is_refused_by_filter_and_bind(
    changes: dict[str, Any], said: str
) -> None:
    async with an_extended_service() as service:
        pod = await service.pod(**changes)
        assert said in (await service.filter(pod))["Error"]
        assert (await service.verb("priorities", {"Pod": pod, "NodeNames": ["n1"]})).status == 422
        if "nodeName" not in pod["spec"]:
            assert said in await service.bind(pod) or "asks for no GPUs" in said
        assert await service.assigned() == []


async def test_pod_whose_limits_differ_from_its_requests_is_refused() -> None:
    async with an_extended_service() as service:
        pod = await service.pod()
        pod["spec"]["containers"][0]["resources"] = {"requests": {CORE: "30"}, "limits": {CORE: "40"}}
        assert "its request is 30 and its limit 40, expected the same" in (await service.filter(pod))["Error"]


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        ({"main": {CORE: "30", MEMORY: "16001"}}, "main (gpu-core 30, gpu-memory 16001)"),
        ({"main": {CORE: "300"}}, "main (3 whole GPUs)"),
        ({each: {CORE: "80"} for each in "xyz"}, "x (gpu-core 80), y (gpu-core 80), z (gpu-core 80)"),
        (
            {"x": {CORE: "30"}, "y": {CORE: "80"}, "z": {CORE: "80"}},
            "x (gpu-core 30), y (gpu-core 80), z (gpu-core 80)",
        ),
    ],
)
async def test_pod_that_is_larger_than_the_gpus_of_a_node_is_refused_for_good(
    containers: dict[str, dict[str, str]], text: str
) -> None:
    async with an_extended_service() as service:
        pod = await service.pod(containers=containers)
        sentence = f"the node's GPUs are too few or too small for {text}"
        assert (await service.filter(pod, "n1"))["FailedAndUnresolvableNodes"] == {"n1": sentence}
        assert await service.bind(pod) == f"pod ns/a cannot be bound to node n1: {sentence}"


async def test_containers_of_30_and_twice_80_share_two_gpus_and_one_without_gpus_gets_none() -> None:
    async with an_extended_service() as service:
        containers = {"x": {CORE: "80"}, "plain": {"cpu": "1"}, "y": {CORE: "80"}, "z": {CORE: "20"}}
        pod = await service.pod(containers=containers)
        assert await service.bind(pod) == ""
        now = service.server.answer("GET", PODS.path("ns", "a"), {}, None)
        assert gpus_of(now) == {"x": "0", "y": "1", "z": "0"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is not JSON"),
        (b"[]", "the body"),
        (b'{"Pod": 5, "NodeNames": []}', "Pod cannot be read"),
        (b'{"Pod": null, "NodeNames": ["n1"]}', "Pod cannot be read"),
        (b'{"Pod": {"metadata": {"name": "a"}}, "NodeNames": null}', "must be configured with nodeCacheCapable: true"),
        (b'{"Pod": {"metadata": {"name": "a"}}, "NodeNames": "n1"}', "nodenames: expected"),
        (b'{"Pod": {"metadata": {"name": "a", "namespace": "ns"}}, "NodeNames": ["n1"]}', "pod ns/a has no uid"),
        (b'{"x": ' + b"[" * 100_000, "the body is n"),
    ],
)
async def test_filter_when_the_body_is_odd_says_what_is_wrong_with_status_200(body: bytes, said: str) -> None:
    async with an_extended_service() as service:
        answer = await service.verb("filter", body)
        assert (answer.status, said in answer.json()["Error"]) == (200, True), answer.body[:300]


async def test_filter_reads_keys_of_any_case_and_skips_those_it_does_not_know() -> None:
    async with an_extended_service() as service:
        pod = {**await service.pod(), "new": {"field": [1]}}
        answer = await service.verb("filter", {"pod": pod, "nodenames": ["n1", "n9"], "Extra": {"a": None}})
        assert answer.json()["NodeNames"] == ["n1"]
        assert answer.json()["FailedAndUnresolvableNodes"] == {"n9": "the node has no GPUs to share"}


async def test_body_of_10_mb_is_refused_and_changes_nothing() -> None:
    async with an_extended_service() as service:
        for verb in ("filter", "priorities", "preemption", "bind"):
            answer = await service.verb(verb, io.BytesIO(b'{"x": "' + b"y" * 10_000_000 + b'"}'))
            assert (answer.status, "larger than this server takes" in answer.as_a(Problem).detail) == (413, True)


async def test_bind_of_a_pod_that_is_gone_leaving_over_bound_or_another_by_now_is_refused() -> None:
    async with an_extended_service() as service:
        pod = await service.pod()
        assert await service.bind(pod, PodUID="other") == (
            f"pod ns/a is another one by now: its uid is {pod['metadata']['uid']}, not other"
        )
        assert await service.bind(pod, PodName="b") == "pod ns/b is gone"
        assert (
            await service.bind(pod, Node="n2") == "pod ns/a cannot be bound to node n2: the node has no GPUs to share"
        )
        assert "one of them is missing" in await service.bind(pod, Node="")
        service.server.answer("PATCH", PODS.path("ns", "a", "status"), {}, {"status": {"phase": "Failed"}})
        assert await service.bind(pod) == "pod ns/a has ended: it is not bound any more"
        assert await service.assigned() == []
        other = await service.pod("c")
        assert [await service.bind(other), await service.bind(other)] == ["", ""]
        assert await service.bind(other, "n2") == "pod ns/c is on node n1, and cannot be bound to n2"
        assert await service.assigned() == ["ns/c"]


async def test_bind_of_a_pod_that_is_gone_or_another_one_though_the_mirror_still_has_it_leaves_it_unbound() -> None:
    async with an_extended_service() as service:
        pod = await service.pod()
        service.shares.pods.put(None, msgspec.convert(pod, Pod))
        service.server.answer("DELETE", PODS.path("ns", "a"), {}, {"gracePeriodSeconds": 0})
        assert "pod" in await service.bind(pod)
        again = await service.pod()
        assert await service.bind(pod) == (
            f"pod ns/a is another one by now: its uid is {again['metadata']['uid']}, not {pod['metadata']['uid']}"
        )
        assert "nodeName" not in service.server.answer("GET", PODS.path("ns", "a"), {}, None)["spec"]


async def test_preemption_keeps_the_nodes_where_the_victims_make_room_for_the_gpu() -> None:
    async with an_extended_service() as service:
        victims = [await service.pod(name, 80) for name in "ab"]
        assert [await service.bind(pod) for pod in victims] == ["", ""]
        pod = await service.pod("c", 100)
        assert (await service.filter(pod, "n1"))["FailedNodes"] == {
            "n1": "too little is left of the node's GPUs for main (1 whole GPU)"
        }
        small = await service.pod("d", 20)
        assert await service.bind(small) == ""
        uids = [each["metadata"]["uid"] for each in (*victims, small)]
        for leaving, has_room in ((uids[:1], False), (uids[1:2], True), (uids[::2], True), ([], False)):
            meta = {"Pods": [{"UID": uid} for uid in leaving], "NumPDBViolations": 1}
            whole = {"Pods": [{"metadata": {"uid": uid}} for uid in leaving] or None, "NumPDBViolations": 1}
            for sent in ({"NodeNameToMetaVictims": {"n1": meta}}, {"NodeNameToVictims": {"n1": whole}}):
                answer = (await service.verb("preemption", {"Pod": pod, **sent})).json()
                assert answer == {"NodeNameToMetaVictims": {"n1": meta} if has_room else {}}


async def test_token_of_the_role_scheduler_is_taken_as_a_password_and_may_do_nothing_else(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(START))
    token, viewer = access.add("kube-scheduler", "scheduler"), access.add("ann", "viewer")
    async with an_extended_service(access) as service:
        pod = await service.pod()
        for shown, status in ((token, 200), (viewer, 403), ("wrong", 401)):
            basic = base64.b64encode(f"kube-scheduler:{shown}".encode()).decode()
            body = {"Pod": pod, "NodeNames": ["n1"]}
            answer = await service.verb("filter", body, headers={"Authorization": f"Basic {basic}"})
            assert answer.status == status
        assert (await service.verb("filter", {}, headers={"Authorization": "Basic ?"})).status == 401
        assert (await service.verb("filter", {}, token=token)).status == 200
        assert (await service.verb("filter", {})).status == 401
        basic = base64.b64encode(f"x:{token}".encode()).decode()
        for path in ("/api/v1/jobs", "/api/v1/pools"):
            assert (await service.ask("GET", path, token=token)).status == 403
            assert (await service.ask("GET", path, headers={"Authorization": f"Basic {basic}"})).status == 401


async def test_service_that_extends_no_kube_scheduler_says_so() -> None:
    async with a_service() as service:
        for method, verb in (("POST", "filter"), ("POST", "priorities"), ("POST", "bind"), ("GET", "status")):
            answer = await service.ask(method, f"/scheduler/{verb}", body={} if method == "POST" else None)
            assert (answer.status, "set sharing.enabled" in answer.as_a(Problem).detail) == (404, True)


async def test_extender_while_its_mirror_still_reads_the_cluster_answers_with_an_error() -> None:
    async with an_extended_service() as service:
        service.shares.is_synced = lambda: False
        assert "still reading the cluster" in (await service.filter(await service.pod()))["Error"]


async def test_node_with_a_pod_whose_gpus_are_not_recorded_is_closed() -> None:
    async with an_extended_service() as service:
        other = await service.pod("other", 10, spec={"nodeName": "n1"})
        service.shares.pods.put(None, msgspec.convert(other, Pod))
        found = await service.filter(await service.pod())
        assert found["FailedNodes"] == {"n1": "GPUs that pod ns/other uses there are not recorded yet"}


async def test_pod_on_a_server_without_pods_is_not_found_and_told_why() -> None:
    async with a_service() as service:
        answer = await service.ask("GET", "/api/v1/pods/ns/a")
        assert (answer.status, answer.as_a(Problem).detail) == (
            404,
            "this server knows no pods: it does not run on Kubernetes",
        )
