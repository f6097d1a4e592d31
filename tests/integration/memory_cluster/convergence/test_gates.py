"""The gates of a job's workers are lifted together or not at all, on a cluster in memory and on virtual time."""

import asyncio

import msgspec
import pytest

from tests.kube.acting import NAMESPACE, Stage
from tests.kube.client import PODS
from tests.kube.devices import CLASS, a_claim_template, a_device_class, a_slice, claims_of
from tests.kube.memory_api import Wire
from tests.kube.objects import a_pod
from tests.virtual_time import virtually
from voda.cluster.kubernetes.convergence.desired import DesiredHalt, DesiredRun
from voda.cluster.kubernetes.device_objects import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.reasons.nodes import NoDevices, OwnSelector
from voda.domain.reasons.stalls import LacksClaims, LostNode, TakenGpus
from voda.events.types import ActionFailed, WorkerRefused


def a_stage(wire: Wire | None = None, *jobs: str) -> Stage:
    """Return a stage with one node of 4 GPUs, and jobs of two workers each that wait for it."""
    stage = Stage(wire)
    stage.add_node("n1")
    for job_id in jobs:
        stage.add_job(job_id, workers=2)
        for index in range(2):
            stage.add_worker(job_id, index)
    return stage


def let_go(stage: Stage) -> dict[str, str]:
    """Return name -> node, of the workers whose gate was lifted."""
    pods = stage.server.objects[PODS].values()
    return {
        pod["metadata"]["name"]: pod["metadata"]["annotations"]["voda.dev/node"]
        for pod in pods
        if not pod["spec"].get("schedulingGates")
    }


def test_gates_when_all_gpus_are_free_are_lifted_for_the_planned_node_and_count_before_the_watch_shows_it() -> None:
    async def act() -> None:
        stage = a_stage(None, "a")
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        assert let_go(stage) == {"a-worker-0": "n1", "a-worker-1": "n1"}
        assert stage.pod("a-worker-0")["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n1"}
        assert stage.gates.reservations.free_milli("n1") == 2000
        assert stage.inventory.gpu_nodes("a") == {}
        stage.schedule()
        stage.watch()
        assert stage.inventory.gpu_nodes("a") == {0: "n1", 1: "n1"}
        assert stage.gates.reservations.free_milli("n1") == 2000

    virtually(act())


def test_gate_of_a_worker_that_claims_devices_waits_for_free_ones_and_is_refused_where_there_are_none() -> None:
    async def act() -> None:
        rule = PoolRule(device_classes=(CLASS,))
        stage = Stage(rule=rule)
        devices = stage.inventory.stock.devices
        devices.published.put_class(CLASS, msgspec.convert(a_device_class(), DeviceClass))
        template = msgspec.convert(a_claim_template("three", NAMESPACE, 3), ResourceClaimTemplate)
        devices.put_template(template.metadata.key, template)
        for node in ("n1", "n2"):
            stage.add_node(node, gpus=4 if node == "n2" else 0)
        devices.published.put_slice("n1", msgspec.convert(a_slice("n1", 4), ResourceSlice))
        taken = {"driver": CLASS, "pool": "n1", "device": "gpu-0"}, {"driver": CLASS, "pool": "n1", "device": "gpu-1"}
        status = {"allocation": {"devices": {"results": taken}}}
        claim = msgspec.convert({"metadata": {"name": "other", "namespace": "x"}, "status": status}, ResourceClaim)
        devices.put_claim("x/other", claim)
        stage.add_job("a", gpus_per_replica=3)
        stage.add_worker("a", 0, containers=[{"name": "worker"}], **claims_of("three"))
        await stage.actuator.set_desired("a", DesiredRun(("n1",)))
        assert let_go(stage) == {}
        assert stage.gates.waiting_reasons["a"] == LacksClaims(pod="a-worker-0", claims=("gpus",))
        stage.set_status("a-worker-0", resourceClaimStatuses=[{"name": "gpus", "resourceClaimName": "a-worker-0-x"}])
        stage.watch()
        await stage.actuator.set_desired("a", DesiredRun(("n1",)))
        assert let_go(stage) == {}
        assert stage.gates.waiting_reasons == {"a": TakenGpus(node="n1", free=2, needed=3, resource="GPUs")}
        devices.put_claim("x/other", None)
        await stage.actuator.set_desired("a", DesiredRun(("n2",)))
        assert let_go(stage) == {}
        [refused] = stage.told
        assert refused == WorkerRefused(
            job_id="a",
            node="n2",
            reason=NoDevices(worker="a-worker-0"),
            fits=0,
        )
        await stage.actuator.set_desired("a", DesiredRun(("n1",)))
        assert let_go(stage) == {"a-worker-0": "n1"}
        assert stage.gates.reservations.free_milli("n1") == 1000
        # kube-scheduler allocates a claim a moment before it binds the pod.
        allocated = [{"driver": CLASS, "pool": "n1", "device": f"gpu-{number}"} for number in range(3)]
        owner = {"kind": "Pod", "name": "a-worker-0", "uid": stage.pod("a-worker-0")["metadata"]["uid"]}
        metadata = {"name": "a-worker-0-x", "namespace": NAMESPACE, "ownerReferences": [owner]}
        body = {"metadata": metadata, "status": {"allocation": {"devices": {"results": allocated}}}}
        devices.put_claim(f"{NAMESPACE}/a-worker-0-x", msgspec.convert(body, ResourceClaim))
        assert stage.gates.reservations.free_milli("n1") == 1000
        stage.schedule()
        stage.watch()
        assert stage.gates.reservations.free_milli("n1") == 1000

    virtually(act())


def test_gates_when_one_worker_is_not_there_yet_stay_closed() -> None:
    async def act() -> None:
        stage = a_stage(None, "a")
        await stage.actuator.set_desired("a", DesiredRun(("n1",) * 3))
        assert let_go(stage) == {}
        stage.watch()
        stage.add_worker("a", 2)
        await stage.actuator.converge(["a"])
        assert len(let_go(stage)) == 3

    virtually(act())


def test_gates_when_others_have_the_gpus_still_stay_closed_and_no_node_is_refused() -> None:
    async def act() -> None:
        stage = a_stage(None, "a", "b")
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        stage.add_job("c", workers=3)
        for index in range(3):
            stage.add_worker("c", index)
        await stage.actuator.set_desired("c", DesiredRun(("n1",) * 3))
        await stage.actuator.set_desired("b", DesiredRun(("n9", "n9")))
        assert sorted(let_go(stage)) == ["a-worker-0", "a-worker-1"]
        assert stage.told == []
        assert stage.gates.waiting_reasons == {
            "b": LostNode(node="n9"),
            "c": TakenGpus(node="n1", free=2, needed=3, resource="nvidia.com/gpu"),
        }

    virtually(act())


def test_gates_stay_closed_while_pods_that_leave_have_the_cpus_and_no_node_is_refused() -> None:
    async def act() -> None:
        stage = Stage()
        stage.add_node("n1", cpu="64")
        asking = [{"name": "worker", "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "40"}}}]
        stage.add_job("a")
        stage.add_worker("a", 0, node="n1", phase="Running", finalizers=["tests/stay"], containers=asking)
        stage.add_job("b")
        stage.add_worker("b", 0, containers=asking)
        stage.remove_pod("a-worker-0")
        stage.watch()
        await stage.actuator.set_desired("b", DesiredRun(("n1",)))
        assert let_go(stage) == {"a-worker-0": "n1"}
        assert stage.gates.waiting_reasons == {"b": TakenGpus(node="n1", free=24, needed=40, resource="cpu")}
        assert stage.told == []
        stage.inventory.take_dirty()
        stage.change_pod("a-worker-0", {"metadata": {"finalizers": []}})
        stage.watch()
        assert stage.inventory.take_dirty()[0] == {"n1"}
        await stage.actuator.converge(["b"])
        assert let_go(stage) == {"b-worker-0": "n1"}

    virtually(act())


def test_gates_are_lifted_where_no_pod_leaves_whatever_cpus_there_are() -> None:
    async def act() -> None:
        stage = Stage()
        stage.add_node("n1", cpu="64")
        asking = [{"name": "worker", "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "40"}}}]
        for job_id, node in (("a", "n1"), ("b", "")):
            stage.add_job(job_id)
            stage.add_worker(job_id, 0, node=node, phase="Running" if node else "", containers=asking)
        await stage.actuator.set_desired("b", DesiredRun(("n1",)))
        # It is for kube-scheduler to say what is missing.
        assert "b-worker-0" in let_go(stage)

    virtually(act())


def test_job_that_waited_for_gpus_when_its_halt_fails_is_tried_again_by_nobody_else() -> None:
    async def act() -> None:
        stage = a_stage(None, "a")
        await stage.actuator.set_desired("a", DesiredRun(("n9", "n9")))
        assert (stage.gates.waiting_reasons, stage.actuator.underway) == ({"a": LostNode(node="n9")}, set())
        stage.wire.is_down = True
        for _ in range(3):
            await stage.actuator.set_desired("a", DesiredHalt())
        assert (len(stage.told), stage.actuator.underway) == (1, {"a"})

    virtually(act())


def test_gates_of_two_jobs_that_converge_together_are_lifted_for_the_one_that_fits() -> None:
    async def act() -> None:
        stage = Stage(Wire(longest_s=1.0))
        stage.add_node("n1")
        for job_id in ("a", "b"):
            stage.add_job(job_id, workers=3)
            for index in range(3):
                stage.add_worker(job_id, index)
            stage.actuator.desired[job_id] = DesiredRun(("n1",) * 3)
        await stage.actuator.converge(["a", "b"])
        assert set(let_go(stage)) == {"a-worker-0", "a-worker-1", "a-worker-2"}
        assert stage.gates.reservations.free_milli("n1") == 1000
        assert stage.gates.waiting_reasons == {"b": TakenGpus(node="n1", free=1, needed=3, resource="nvidia.com/gpu")}
        for index in range(3):
            stage.remove_pod(f"a-worker-{index}")
        stage.watch()
        await stage.actuator.converge(["b"])
        assert set(let_go(stage)) == {"b-worker-0", "b-worker-1", "b-worker-2"}

    virtually(act())


def test_room_is_kept_until_the_workers_are_bound_and_nothing_is_left_of_it_then() -> None:
    async def act() -> None:
        stage = a_stage(None, "a")
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        stage.watch()
        stage.gates.keep_only(["a"])
        assert stage.gates.reservations.free_milli("n1") == 2000
        stage.schedule()
        stage.watch()
        stage.gates.keep_only(["a"])
        assert stage.gates.reservations.free_milli("n1") == 2000
        assert not any(vars(stage.gates.reservations)[name] for name in ("_reserved", "_under_way"))

    virtually(act())


@pytest.mark.parametrize(("node", "owner", "free"), [("n1", "own", 3000), ("n2", "own", 4000), ("n1", "x", 4000)])
def test_worker_that_a_former_leader_let_go_has_its_room_where_the_plan_has_it_alone(
    node: str, owner: str, free: int
) -> None:
    async def act() -> None:
        stage = a_stage()
        stage.add_node("n2")
        uid = stage.add_job("a", workers=1)
        stage.add_worker("a", 0, schedulingGates=[])
        # More workers than planned: whoever owns the job can make such pods.
        stage.add_worker("a", 7, schedulingGates=[])
        reference = {"apiVersion": "v1", "kind": "MPIJob", "name": "a", "uid": uid if owner == "own" else owner}
        for index in (0, 7):
            metadata = {"annotations": {"voda.dev/node": node}, "ownerReferences": [reference]}
            stage.change_pod(f"a-worker-{index}", {"metadata": metadata})
        stage.watch()
        await stage.actuator.set_desired("a", DesiredRun(("n1",)))
        assert (stage.gates.reservations.free_milli(node), stage.inventory.stock.free_milli(node)) == (free, 4000)

    virtually(act())


def test_gates_of_others_stay_closed_and_keep_the_job_waiting() -> None:
    async def act() -> None:
        stage = a_stage()
        stage.add_job("a", workers=1)
        both = [{"name": "example.com/quota"}, {"name": "voda.dev/placement"}]
        stage.add_worker("a", 0, schedulingGates=both)
        await stage.actuator.set_desired("a", DesiredRun(("n1",)))
        assert stage.pod("a-worker-0")["spec"]["schedulingGates"] == both
        assert stage.told == []

    virtually(act())


@pytest.mark.parametrize(("selected", "is_refused"), [("n1", False), ("n2", True)])
def test_node_that_the_workers_own_selector_rules_out_is_refused(selected: str, is_refused: bool) -> None:
    async def act() -> None:
        stage = a_stage()
        stage.add_job("a", workers=1)
        stage.add_worker("a", 0, nodeSelector={"kubernetes.io/hostname": selected})
        await stage.actuator.set_desired("a", DesiredRun(("n1",)))
        reason = OwnSelector(worker="a-worker-0", label="kubernetes.io/hostname", value=selected)
        assert stage.told == ([WorkerRefused(job_id="a", node="n1", reason=reason, fits=0)] if is_refused else [])
        assert bool(let_go(stage)) == (not is_refused)

    virtually(act())


def test_worker_whose_gate_somebody_else_lifted_is_deleted_and_the_log_is_told() -> None:
    async def act() -> None:
        stage = a_stage()
        stage.add_node("n2")
        stage.add_job("a", workers=2)
        stage.add_worker("a", 0, schedulingGates=[])
        stage.add_worker("a", 1)
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        stage.watch()
        assert stage.pods() == {"a-worker-1": ""}
        # kube-scheduler may have been faster than the watch, and have found another node.
        stage.add_worker("a", 0, node="n2")
        stage.change_pod("a-worker-0", {"metadata": {"annotations": {"voda.dev/node": None}}})
        stage.watch()
        await asyncio.sleep(1.0)
        await stage.actuator.converge(["a"])
        errors = [fact.error for fact in stage.told if isinstance(fact, ActionFailed)]
        assert ["of a-worker-0 was lifted by somebody else" in error for error in errors] == [True, True]
        assert stage.pods() == {"a-worker-1": ""}

    virtually(act())


def test_worker_that_was_let_go_to_the_planned_node_by_somebody_else_stays() -> None:
    async def act() -> None:
        stage = a_stage()
        stage.add_job("a", workers=1)
        stage.add_worker("a", 0, node="n1")
        stage.change_pod("a-worker-0", {"metadata": {"annotations": {"voda.dev/node": None}}})
        stage.watch()
        await stage.actuator.set_desired("a", DesiredRun(("n1",)))
        assert stage.pods() == {"a-worker-0": "n1"}

    virtually(act())


def test_worker_when_it_was_let_go_or_went_meanwhile_is_no_failure() -> None:
    async def act() -> None:
        stage = a_stage(None, "a")
        stage.remove_pod("a-worker-1")
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        assert let_go(stage) == {"a-worker-0": "n1"}
        assert stage.told == []

    virtually(act())


def test_worker_when_another_has_its_name_by_now_is_no_failure() -> None:
    async def act() -> None:
        stage = a_stage(None, "a")
        stage.remove_pod("a-worker-1")
        gated = a_pod("a-worker-1", NAMESPACE, spec={"schedulingGates": [{"name": "voda.dev/placement"}]})
        stage.server.answer("POST", PODS.path(NAMESPACE), {}, gated)
        stage.actuator.desired["a"] = DesiredRun(("n1", "n1"))
        await stage.actuator.converge(["a"])
        assert let_go(stage) == {"a-worker-0": "n1"}
        assert stage.told == []

    virtually(act())


def test_gates_when_the_server_does_not_answer_are_lifted_later() -> None:
    async def act() -> None:
        stage = a_stage(None, "a")
        stage.actuator.desired["a"] = DesiredRun(("n1", "n1"))
        stage.wire.is_down = True
        await stage.actuator.converge(["a"])
        stage.wire.is_down = False
        assert stage.gates.reservations.free_milli("n1") == 4000
        await stage.actuator.set_desired("a", DesiredRun(("n1", "n1")))
        assert len(let_go(stage)) == 2

    virtually(act())


def test_worker_of_a_job_when_it_is_taken_away_is_no_failure_that_the_job_counts() -> None:
    async def act() -> None:
        stage = a_stage()
        stage.add_node("n2")
        stage.add_job("a", workers=1)
        stage.add_worker("a", 0, finalizers=["batch.kubernetes.io/job-tracking", "example.com/kept"])
        await stage.actuator.set_desired("a", DesiredRun(("n1",)))
        stage.watch()
        await stage.actuator.set_desired("a", DesiredRun(("n2",)))
        left = stage.server.objects[PODS].get(("ns", "a-worker-0"))
        assert left is None or left["metadata"]["finalizers"] == ["example.com/kept"]
        assert ("PATCH", "/api/v1/namespaces/ns/pods/a-worker-0") in stage.wire.asked[1:]

    virtually(act())
