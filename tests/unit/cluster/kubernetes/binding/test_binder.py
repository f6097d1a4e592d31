"""Workers get their nodes together or not at all, on a cluster in memory and on virtual time."""

import asyncio

from tests.kube.acting import Stage
from tests.kube.client import PODS
from tests.kube.memory_api import Wire
from tests.virtual_time import virtually
from voda.cluster.kubernetes.binding.binder import LIFT_AFTER_S
from voda.cluster.kubernetes.convergence.steps import DesiredRun
from voda.events.types import WorkerRefused


def a_stage(wire: Wire | None = None, *jobs: str, **requests: str) -> Stage:
    """Return a stage with one node of 4 GPUs and 4 CPUs, and jobs of two workers each that wait for it."""
    stage = Stage(wire)
    stage.add_node("n1", cpu="4")
    for job_id in jobs:
        stage.add_job(job_id, workers=2)
        for index in range(2):
            stage.add_worker(job_id, index, **requests)
    return stage


def bound(stage: Stage) -> list[str]:
    return sorted(name for name, node in stage.pods().items() if node)


def test_workers_when_all_fit_are_bound_and_known_to_be_before_the_watch_tells() -> None:
    async def act() -> None:
        stage = a_stage(None, "a")
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        assert bound(stage) == ["a-worker-0", "a-worker-1"]
        assert stage.inventory.gpu_nodes("a") == {0: "n1", 1: "n1"}

    virtually(act())


def test_workers_when_one_does_not_fit_are_not_bound_and_the_node_is_told_once() -> None:
    async def act() -> None:
        stage = a_stage(None, "a", cpu="3")
        for _ in range(3):
            await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        assert bound(stage) == []
        [refusal] = stage.told
        assert isinstance(refusal, WorkerRefused)
        assert (refusal.node, "free beside 1 other of its job" in refusal.reason) == ("n1", True)

    virtually(act())


def test_workers_when_one_of_them_is_not_there_yet_are_not_bound() -> None:
    async def act() -> None:
        stage = a_stage(None, "a")
        await stage.actuator.set_desired("a", DesiredRun(("n1",) * 3))
        assert bound(stage) == []
        stage.watch()
        stage.add_worker("a", 2)
        await stage.actuator.converge(["a"])
        assert len(bound(stage)) == 3

    virtually(act())


def test_room_when_two_jobs_are_bound_at_once_is_promised_to_one_of_them() -> None:
    async def act() -> None:
        stage = a_stage(Wire(longest_s=1.0), "a", "b", cpu="1500m")
        async with asyncio.TaskGroup() as group:
            for job_id in "ab":
                group.create_task(stage.actuator.set_desired(job_id, DesiredRun(("n1", "n1"))))
        assert bound(stage) == ["a-worker-0", "a-worker-1"]
        assert [fact.job_id for fact in stage.told if isinstance(fact, WorkerRefused)] == ["b"]

    virtually(act())


def test_promise_when_the_server_did_not_answer_is_taken_back() -> None:
    async def act() -> None:
        stage = a_stage(None, "a", "b", cpu="1500m")
        stage.actuator.desired["a"] = DesiredRun(("n1", "n1"))
        stage.wire.is_down = True
        await stage.actuator.converge(["a"])
        stage.wire.is_down = False
        assert not stage.inventory.stock.loads["n1"].taken
        await stage.actuator.set_desired("b", DesiredRun(("n1", "n1")))
        assert bound(stage) == ["b-worker-0", "b-worker-1"]

    virtually(act())


def test_promise_when_its_node_goes_meanwhile_leaves_nothing() -> None:
    async def act() -> None:
        stage = a_stage(Wire(longest_s=1.0), "a")
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.actuator.set_desired("a", DesiredRun(("n1", "n1"))))
            await asyncio.sleep(0)
            stage.server.answer("DELETE", "/api/v1/nodes/n1", {}, {})
            for index in range(2):
                stage.remove_pod(f"a-worker-{index}")
            stage.watch()
        assert not stage.inventory.stock.loads

    virtually(act())


def test_worker_when_it_was_bound_or_went_meanwhile_is_no_failure() -> None:
    async def act() -> None:
        stage = a_stage(None, "a")
        binding = {"metadata": {"name": "a-worker-0"}, "target": {"name": "n1"}}
        stage.server.answer("POST", "/api/v1/namespaces/ns/pods/a-worker-0/binding", {}, binding)
        stage.remove_pod("a-worker-1")
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        assert bound(stage) == ["a-worker-0"]
        assert stage.told == []

    virtually(act())


def test_gpus_when_others_took_them_meanwhile_are_no_refusal_of_the_node() -> None:
    async def act() -> None:
        stage = a_stage(None, "a", "b")
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        stage.add_job("c", workers=3)
        for index in range(3):
            stage.add_worker("c", index)
        await stage.actuator.set_desired("c", DesiredRun(("n1",) * 3))
        await stage.actuator.set_desired("b", DesiredRun(("n9", "n9")))
        assert bound(stage) == ["a-worker-0", "a-worker-1"]
        assert stage.told == []

    virtually(act())


def test_refusal_when_it_is_old_is_lifted_and_may_be_told_again() -> None:
    async def act() -> None:
        stage = a_stage(None, "a", cpu="3")
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        await asyncio.sleep(LIFT_AFTER_S - 1)
        stage.binder.lift({"a": ("n1",)})
        assert len(stage.told) == 1
        await asyncio.sleep(1)
        stage.binder.lift({"a": ("n1",)})
        assert stage.told[1:] == [WorkerRefused(job_id="a", node="n1", reason="")]
        await stage.actuator.converge(["a"])
        assert len(stage.told) == 3

    virtually(act())


def test_refusal_when_the_log_lifted_it_by_itself_is_told_again() -> None:
    async def act() -> None:
        stage = a_stage(None, "a", cpu="3")
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        # Any change of the node lifts it there.
        stage.binder.lift({})
        await stage.actuator.converge(["a"])
        assert len(stage.told) == 2

    virtually(act())


def test_refusal_when_a_former_leader_told_it_is_lifted_as_well() -> None:
    async def act() -> None:
        stage = a_stage()
        stage.binder.lift({"a": ("n1",)})
        await asyncio.sleep(LIFT_AFTER_S)
        stage.binder.lift({"a": ("n1",)})
        assert stage.told == [WorkerRefused(job_id="a", node="n1", reason="")]

    virtually(act())


def test_gate_when_its_worker_has_a_node_is_lifted_for_that_node_alone() -> None:
    async def act() -> None:
        stage = a_stage()
        stage.add_job("a", workers=2)
        for index in range(2):
            stage.add_gated_worker("a", index)
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        for index in range(2):
            pod = stage.pod(f"a-worker-{index}")
            assert not pod["spec"].get("schedulingGates")
            assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n1"}
            assert pod["metadata"]["annotations"]["voda.dev/node"] == "n1"
        assert stage.inventory.stock.loads["n1"].taken["nvidia.com/gpu"] == 2000
        assert stage.inventory.gpu_nodes("a") == {}

    virtually(act())


def test_worker_of_a_job_when_it_is_taken_away_is_no_failure_that_the_job_counts() -> None:
    async def act() -> None:
        stage = a_stage()
        stage.add_node("n2")
        stage.add_job("a", workers=1)
        stage.add_gated_worker("a", 0)
        await stage.actuator.set_desired("a", DesiredRun(("n1",)))
        stage.watch()
        await stage.actuator.set_desired("a", DesiredRun(("n2",)))
        left = stage.server.objects[PODS].get(("ns", "a-worker-0"))
        assert left is None or left["metadata"]["finalizers"] == ["example.com/kept"]
        assert ("PATCH", "/api/v1/namespaces/ns/pods/a-worker-0") in stage.wire.asked[1:]

    virtually(act())
