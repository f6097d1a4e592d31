"""Nodes over HTTP."""

from pathlib import Path

from tests.builders import a_node, a_spec
from tests.integration.api.test_jobs import tokens
from tests.service import a_service
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest
from voda.domain.node import Taint
from voda.domain.reasons.requests import Requested
from voda.events.types import (
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    ShareAssigned,
    ShareReleased,
    WorkerExited,
    WorkerStarted,
)
from voda.wire.base import Problem
from voda.wire.pools import NodeList, NodeView


async def test_nodes_when_workers_run_then_show_who_holds_what() -> None:
    async with a_service(nodes={"n1": 4, "n2": 8}) as service:
        await service.happens(JobSubmitted(spec=a_spec("a", max_replicas=2, gpus_per_replica=2)))
        await service.happens(JobSubmitted(spec=a_spec("b")))
        await service.happens(WorkerStarted(job_id="a", workers={0: "n1", 1: "n2"}))
        await service.happens(WorkerStarted(job_id="b", workers={0: "n2"}))
        nodes = (await service.ask("GET", "/api/v1/nodes")).as_a(NodeList).items
        assert [(node.name, node.gpus, node.used_gpus, node.free_gpus, node.jobs) for node in nodes] == [
            ("n1", 4, 2, 2, {"a": 2}),
            ("n2", 8, 3, 5, {"a": 2, "b": 1}),
        ]
        await service.happens(WorkerExited(job_id="a", workers=(0, 1)))
        assert (await service.ask("GET", "/api/v1/nodes/n1")).as_a(NodeView).jobs == {}


async def test_node_shows_its_taints_and_of_its_labels_those_that_say_what_machine_it_is() -> None:
    zone = {"topology.kubernetes.io/zone": "a"}
    taint = Taint(key="dedicated", value="vision")
    async with a_service() as service:
        node = a_node("n2", gpus=4, labels={**zone, "feature.node.kubernetes.io/cpu": "x"}, taints=(taint,))
        await service.happens(NodeJoined(node=node))
        shown = (await service.ask("GET", "/api/v1/nodes/n2")).as_a(NodeView)
        assert (shown.labels, shown.taints, shown.is_schedulable) == (zone, ("dedicated=vision:NoSchedule",), True)


async def test_node_when_it_cannot_be_used_then_has_nothing_free() -> None:
    async with a_service() as service:
        await service.happens(NodeJoined(node=a_node("n2", gpus=4, is_ready=False)))
        await service.happens(NodeJoined(node=a_node("n3", gpus=4, foreign_gpus=3)))
        node = (await service.ask("GET", "/api/v1/nodes/n2")).as_a(NodeView)
        assert (node.is_ready, node.free_gpus) == (False, 0)
        assert (await service.ask("GET", "/api/v1/nodes/n3")).as_a(NodeView).free_gpus == 1


async def test_nodes_when_of_one_pool_then_are_its_own_alone() -> None:
    async with a_service() as service:
        await service.happens(NodeJoined(node=a_node("v1", pool="v100")))
        nodes = (await service.ask("GET", "/api/v1/nodes?pool=v100")).as_a(NodeList).items
        assert [node.name for node in nodes] == ["v1"]
        assert [node.name for node in (await service.ask("GET", "/api/v1/nodes")).as_a(NodeList).items] == ["n1", "v1"]


async def test_node_when_drained_says_who_drained_it_and_why_until_it_is_undrained() -> None:
    async with a_service(nodes={"n1": 4, "n2": 4}) as service:
        drained = (await service.ask("POST", "/api/v1/nodes/n1/drain?reason=new%20fan")).as_a(NodeView)
        assert (drained.is_draining, drained.free_gpus) == (True, 0)
        assert drained.drain_message == "drained by admin: new fan"
        assert drained.drain_reason == Requested(by="admin", text="new fan")
        again = await service.ask("POST", "/api/v1/nodes/n1/drain?reason=other")
        assert again.as_a(NodeView).drain_reason == drained.drain_reason
        assert (await service.ask("GET", "/api/v1/pools/default")).json()["gpus"] == 4
        await service.happens(NodeChanged(node=a_node("n1", gpus=4, foreign_gpus=1)))
        assert (await service.ask("GET", "/api/v1/nodes/n1")).as_a(NodeView).is_draining
        undrained = (await service.ask("POST", "/api/v1/nodes/n1/undrain")).as_a(NodeView)
        assert (undrained.is_draining, undrained.drain_reason, undrained.free_gpus) == (False, None, 3)
        assert (await service.ask("POST", "/api/v1/nodes/n1/undrain")).status == 200
        types = [event["type"] for event in (await service.ask("GET", "/api/v1/events")).json()["items"]]
        assert [each for each in types if "drain" in each] == ["node.drain_requested", "node.undrain_requested"]


async def test_drain_when_the_node_is_unknown_or_the_caller_no_admin_is_refused(tmp_path: Path) -> None:
    async with a_service() as service:
        answer = await service.ask("POST", "/api/v1/nodes/n9/drain")
        assert (answer.status, "Known: n1" in answer.as_a(Problem).detail) == (404, True)
        assert (await service.ask("POST", "/api/v1/nodes/n1/drain?reason=a%0Ab")).status == 422
    access, anna, _, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        assert (await service.ask("POST", "/api/v1/nodes/n1/drain", token=anna)).status == 403


async def test_nodes_when_node_or_pool_is_unknown_then_names_those_there_are() -> None:
    async with a_service() as service:
        answer = await service.ask("GET", "/api/v1/nodes/n9")
        assert (answer.status, "n1" in answer.as_a(Problem).detail) == (404, True)
        answer = await service.ask("GET", "/api/v1/nodes?pool=defalt")
        assert (answer.status, "Did you mean 'default'" in answer.as_a(Problem).detail) == (404, True)


async def test_node_with_gpus_when_pods_share_one_shows_what_is_free_and_who_has_it() -> None:
    gpu = GpuDevice(memory_mib=16_384)
    share = ContainerGpus(gpus=(1,), request=GpuRequest(milli=250, memory_mib=4_096))
    async with a_service() as service:
        await service.happens(NodeJoined(node=a_node("g1", gpus=2, devices=(gpu, gpu))))
        await service.happens(ShareAssigned(node="g1", pod_uid="u1", pod="ml/notebook", containers={"main": share}))
        node = (await service.ask("GET", "/api/v1/nodes/g1")).as_a(NodeView)
        assert [(each.index, each.free_milli, each.free_memory_mib) for each in node.devices] == [
            (0, 1_000, 16_384),
            (1, 750, 12_288),
        ]
        (shown,) = node.devices[1].shares
        assert (shown.pod, shown.pod_uid, shown.container, shown.milli, shown.memory_mib) == (
            "ml/notebook",
            "u1",
            "main",
            250,
            4_096,
        )
        assert (node.free_gpus, node.foreign_gpus, node.devices[0].shares) == (1, 1, ())
        await service.happens(NodeChanged(node=a_node("g1", gpus=1, devices=(gpu,))))
        gone = (await service.ask("GET", "/api/v1/nodes/g1")).as_a(NodeView).devices[1]
        assert (gone.is_present, gone.free_milli, [each.pod for each in gone.shares]) == (False, 0, ["ml/notebook"])
        await service.happens(ShareReleased(node="g1", pod_uid="u1"))
        items = (await service.ask("GET", "/api/v1/nodes")).as_a(NodeList).items
        assert {node.name: len(node.devices) for node in items} == {"g1": 1, "n1": 0}


async def test_node_whose_gpus_pods_claim_shows_the_names_of_the_devices() -> None:
    gpu = GpuDevice(memory_mib=16_384, name="gpu.example.com/g1/gpu-0")
    async with a_service() as service:
        await service.happens(NodeJoined(node=a_node("g1", gpus=1, devices=(gpu,))))
        node = (await service.ask("GET", "/api/v1/nodes/g1")).as_a(NodeView)
        assert [each.name for each in node.devices] == ["gpu.example.com/g1/gpu-0"]
