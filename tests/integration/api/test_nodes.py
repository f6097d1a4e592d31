"""Nodes over HTTP."""

from tests.builders import a_node, a_spec
from tests.service import a_service
from voda.api.schemas import NodeList, NodeView, Problem
from voda.events.types import JobSubmitted, NodeJoined, WorkerExited, WorkerStarted


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


async def test_node_when_it_cannot_be_used_then_has_nothing_free() -> None:
    async with a_service() as service:
        await service.happens(NodeJoined(node=a_node("n2", gpus=4, is_ready=False, labels={"zone": "a"})))
        await service.happens(NodeJoined(node=a_node("n3", gpus=4, foreign_gpus=3)))
        node = (await service.ask("GET", "/api/v1/nodes/n2")).as_a(NodeView)
        assert (node.is_ready, node.free_gpus, node.labels) == (False, 0, {"zone": "a"})
        assert (await service.ask("GET", "/api/v1/nodes/n3")).as_a(NodeView).free_gpus == 1


async def test_nodes_when_of_one_pool_then_are_its_own_alone() -> None:
    async with a_service() as service:
        await service.happens(NodeJoined(node=a_node("v1", pool="v100")))
        nodes = (await service.ask("GET", "/api/v1/nodes?pool=v100")).as_a(NodeList).items
        assert [node.name for node in nodes] == ["v1"]
        assert [node.name for node in (await service.ask("GET", "/api/v1/nodes")).as_a(NodeList).items] == ["n1", "v1"]


async def test_nodes_when_node_or_pool_is_unknown_then_names_those_there_are() -> None:
    async with a_service() as service:
        answer = await service.ask("GET", "/api/v1/nodes/n9")
        assert (answer.status, "n1" in answer.as_a(Problem).detail) == (404, True)
        answer = await service.ask("GET", "/api/v1/nodes?pool=defalt")
        assert (answer.status, "Did you mean 'default'" in answer.as_a(Problem).detail) == (404, True)
