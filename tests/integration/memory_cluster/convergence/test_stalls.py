"""What a job waits for, by what its object and its pods show, and when that is told."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from tests.builders import a_job
from tests.kube.acting import Stage
from tests.kube.client import EVENTS, MPIJOBS, PODS, Object
from tests.kube.memory_api import MemoryApi, Wire
from tests.kube.memory_world import POOL, MemoryWorld
from tests.kube.objects import an_mpijob
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.virtual_time import now_s, virtually
from voda.cluster.kubernetes.convergence.desired import Desired, DesiredHalt, DesiredRun, ObservedJob
from voda.cluster.kubernetes.convergence.stalls import SOON_S, Stall, StallWatch, foremost, stalls_of
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV2
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.domain.reasons.stalls import LacksPods, LostNode, NotStarted, StallReason
from voda.events.text.stalls import stall_text
from voda.events.types import JobStalled

NOW = 1_000_000.0
GONE_BEFORE, GONE_LATER = "1970-01-12T13:46:30Z", "1970-01-12T13:47:00Z"
HERE = DesiredRun(("n1", "n1"))


def a_worker(index: int, node: str = "n1", phase: str = "Running", **fields: Any) -> Pod:
    return _pod(f"a-worker-{index}", "worker", node, phase, **fields)


def a_launcher(node: str = "n2", phase: str = "Running", **fields: Any) -> Pod:
    return _pod("a-launcher-x7", "launcher", node, phase, **fields)


def waiting(reason: str, *, init: bool = False) -> dict[str, Any]:
    status = {"name": "train", "state": {"waiting": {"reason": reason, "message": "back-off 40s"}}}
    return {"initContainerStatuses" if init else "containerStatuses": [status]}


def wait(desired: Desired, pods: Sequence[Pod], unbound_reason: StallReason | None = None, **fields: Any) -> Stall:
    metadata = {"name": "a", "namespace": "ns", "uid": "u1", **fields.get("metadata", {})}
    spec = {"runPolicy": {"suspend": fields.get("suspend", False)}}
    whole = {"metadata": metadata, "spec": spec, "status": fields.get("status", {})}
    workers = {pod.metadata.key: pod for pod in pods if "worker" in pod.metadata.name}
    at = ObservedJob(
        job_id="a",
        job=a_job("a", max_replicas=2, uid="u1"),
        kube_job=KubeJob(MPIJobV2(), msgspec.convert(whole, JobObject)),
        workers=workers,
        indices={key: int(key.rpartition("-")[2]) for key in workers},
        pods={pod.metadata.key: pod for pod in pods},
        dead_nodes={},
        now=NOW,
    )
    return foremost(stalls_of(desired, at, unbound_reason))


def said(stall: Stall) -> str:
    return stall_text(stall.reason)


def test_job_that_runs_waits_for_nothing() -> None:
    assert wait(HERE, [a_worker(0), a_worker(1), a_launcher()]) == Stall()


def test_job_whose_operator_makes_no_pods_waits_for_it() -> None:
    assert "mpi-operator" in said(wait(HERE, [a_worker(0)]))


def test_pod_that_has_failed_and_stays_hides_neither_its_successor_nor_that_there_is_none() -> None:
    failed = a_worker(1, phase="Failed")
    alone = wait(HERE, [a_worker(0), failed])
    assert (isinstance(alone.reason, LacksPods), alone.may_take_long, alone.at_work) == (True, True, 1)
    pods = [a_worker(0), _pod("b-worker-1", "worker", "n1", "Pending", **waiting("ErrImagePull")), failed]
    for order in (pods, [*reversed(pods)]):
        assert said(wait(HERE, order)).endswith("cannot pull its image")


def test_replica_that_has_succeeded_and_gets_no_pod_any_more_is_not_waited_for() -> None:
    assert wait(HERE, [a_worker(1)], status={"completedIndexes": "0"}) == Stall()


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_worker_without_its_image_is_told_alike_at_each_try(reason: str) -> None:
    stall = wait(HERE, [a_worker(0), a_worker(1, phase="Pending", **waiting(reason))])
    assert (said(stall), stall.at_work) == ("worker 1 on n1: container train cannot pull its image", 1)


def test_container_that_cannot_be_started_is_told_with_the_kubelets_word() -> None:
    broken = a_worker(0, phase="Pending", **waiting("CreateContainerConfigError"))
    assert said(wait(HERE, [broken, a_worker(1)])).endswith("does not start: CreateContainerConfigError")
    looping = a_worker(0, **waiting("CrashLoopBackOff", init=True))
    assert said(wait(HERE, [looping, a_worker(1)])).endswith("does not start: CrashLoopBackOff")


def test_container_that_is_being_made_may_take_longer() -> None:
    stall = wait(HERE, [a_worker(0, phase="Pending", **waiting("ContainerCreating")), a_worker(1)])
    assert stall == Stall(NotStarted(worker=0, node="n1"), may_take_long=True)
    assert said(stall) == "worker 0 on n1 has not started yet"


def test_what_may_take_long_hides_nothing_that_does_not() -> None:
    slow, stuck = a_worker(0, phase="Pending"), a_worker(1, phase="Pending", **waiting("ErrImagePull"))
    assert said(wait(HERE, [slow, stuck])) == "worker 1 on n1: container train cannot pull its image"


def test_launcher_that_nobody_finds_a_node_for_is_told() -> None:
    stall = wait(HERE, [a_worker(0), a_worker(1), a_launcher("", "Pending")])
    assert said(stall).startswith("its launcher a-launcher-x7 has no node")


def test_launcher_without_its_image_is_told() -> None:
    stuck = a_launcher(phase="Pending", **waiting("ImagePullBackOff"))
    assert said(wait(HERE, [a_worker(0), a_worker(1), stuck])).startswith("its launcher on n2: container train")


def test_workers_that_are_gated_or_do_not_fit_are_told() -> None:
    gated = a_worker(0, "", "Pending", gates=[{"name": "quota"}])
    assert "scheduling gates quota" in said(wait(HERE, [gated, a_worker(1)]))
    assert wait(HERE, [a_worker(0, "", "Pending"), a_worker(1)], LostNode(node="n1")) == Stall(LostNode(node="n1"))
    assert wait(HERE, [a_worker(0), a_worker(1)], LostNode(node="n1")) == Stall()


def test_pod_that_does_not_go_is_told_when_its_grace_is_over() -> None:
    for stamp, is_told in ((GONE_LATER, False), (GONE_BEFORE, True)):
        stuck = a_worker(1, deleted_at=stamp)
        assert bool(wait(HERE, [a_worker(0), stuck], suspend=True).reason) == is_told


def test_halted_job_waits_for_an_operator_that_leaves_its_pods() -> None:
    assert "training-operator" not in said(wait(DesiredHalt(), [a_worker(0)], suspend=True))
    assert "mpi-operator" in said(wait(DesiredHalt(), [a_worker(0)], suspend=True))
    assert wait(DesiredHalt(), [a_worker(0, deleted_at=GONE_LATER)], suspend=True) == Stall()


def test_job_that_has_ended_waits_for_nothing() -> None:
    succeeded = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    assert wait(HERE, [], status=succeeded) == Stall()
    assert wait(HERE, [], metadata={"deletionTimestamp": GONE_BEFORE}) == Stall()


def _pod(name: str, role: str, node: str, phase: str, **fields: Any) -> Pod:
    labels = {"training.kubeflow.org/job-name": "a", "training.kubeflow.org/job-role": role}
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": labels}
    if "deleted_at" in fields:
        metadata["deletionTimestamp"] = fields.pop("deleted_at")
    spec = {"nodeName": node, "schedulingGates": fields.pop("gates", [])}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase, **fields}}, Pod)


def test_stall_says_how_many_workers_come_before_the_first_that_it_keeps_from_work() -> None:
    late = a_worker(1, phase="Pending", **waiting("ErrImagePull"))
    assert wait(HERE, [a_worker(0)]).at_work == 1
    assert wait(HERE, [a_worker(0), late]).at_work == 1
    assert wait(HERE, [a_worker(0), a_worker(1), a_launcher(**waiting("InvalidImageName"))]).at_work == 0
    # It is only slow, has run before, or waits for GPUs that others hold.
    assert wait(HERE, [a_worker(0), a_worker(1, phase="Pending")]).at_work is None
    assert wait(HERE, [a_worker(0), a_worker(1, **waiting("CrashLoopBackOff"))]).at_work is None
    assert wait(HERE, [a_worker(0), a_worker(1, node="")], LostNode(node="n1")).at_work is None


def test_gap_among_workers_that_are_at_work_holds_nothing_that_others_could_use() -> None:
    missing = wait(HERE, [a_worker(1)])
    assert (isinstance(missing.reason, LacksPods), missing.at_work) == (True, None)
    without_image = wait(HERE, [a_worker(0, phase="Pending", **waiting("ErrImagePull")), a_worker(1)])
    assert ("cannot pull its image" in said(without_image), without_image.at_work) == (True, None)


class IdleOperator(MpiOperatorV2):
    """Serves MPIJobs and does nothing about them."""

    async def reconcile(self, job: Object) -> None:
        """Make no pods."""


async def told(world: MemoryWorld) -> list[str]:
    """Return the stalls that are recorded."""
    events = await world.store.read(0, 10_000)
    return [stall_text(event.data.reason) for event in events if isinstance(event.data, JobStalled)]


async def lacking_pods(jobs: int) -> list[float]:
    """Run so many jobs whose operator makes no pods, on a server that needs 10 s for a list of Events.

    Return when each is recorded as stalled.
    """
    wire = Wire(1, slow_s={"events": 10.0})
    async with MemoryWorld(1, [IdleOperator]) as world:
        await world.add_node("n1", jobs, POOL)
        async with world.replica(wire):
            for number in range(jobs):
                name = f"job-{number}"
                await world.submit(an_mpijob(name, world.namespace, least=1, most=1, pool=POOL, suspend=True))
            await asyncio.sleep(180.0)
        events = await world.store.read(0, 10_000)
        return [event.recorded_at for event in events if isinstance(event.data, JobStalled)]


def test_job_that_lacks_pods_does_not_wait_for_the_events_of_others() -> None:
    at = virtually(lacking_pods(8))
    assert len(at) == 8
    assert max(at) - min(at) < 10.0


async def refused_pods(world: MemoryWorld, name: str, message: str) -> None:
    """Do as a job's controller does whose pods are refused."""
    uid = world.server.objects[MPIJOBS][world.namespace, name]["metadata"]["uid"]
    metadata = {"name": f"{name}-{now_s():.0f}", "namespace": world.namespace}
    said = {"type": "Warning", "reason": "FailedCreate", "message": message, "lastTimestamp": f"{now_s():09.0f}"}
    await world.client.create(EVENTS, {"metadata": metadata, "involvedObject": {"uid": uid}, **said})


async def refusals_by_turns() -> list[str]:
    """Run a job whose operator makes no pods, and says why: one thing, later another, later nothing any more.

    Return the stalls that are recorded.
    """
    async with MemoryWorld(1, [IdleOperator]) as world:
        await world.add_node("n1", 1, POOL)
        async with world.replica(Wire(1)):
            await world.submit(an_mpijob("a", world.namespace, least=1, most=1, pool=POOL, suspend=True))
            await refused_pods(world, "a", "the quota is used up")
            await asyncio.sleep(120.0)
            await refused_pods(world, "a", "the webhook does not answer")
            await asyncio.sleep(240.0)
            for namespace, name in list(world.server.objects[EVENTS]):
                await world.client.delete(EVENTS, name, namespace)
            await asyncio.sleep(1_500.0)
        return await told(world)


def test_job_whose_pods_are_refused_for_another_reason_by_now_is_told_that_one() -> None:
    assert virtually(refusals_by_turns()) == [
        "not all of its workers have a pod: the quota is used up",
        "not all of its workers have a pod: the webhook does not answer",
    ]


class LateOperator(MpiOperatorV2):
    """Makes its pods a while after the job is to run."""

    late_s = 75.0

    async def reconcile(self, job: Object) -> None:
        """See the class."""
        if now_s() >= self.late_s:
            await super().reconcile(job)


async def pods_that_come_while_events_are_read() -> list[str]:
    """Run a job whose pods come while the server takes its time for a list of Events; return what is recorded."""
    async with MemoryWorld(1, [LateOperator]) as world:
        await world.add_node("n1", 1, POOL)
        async with world.replica(Wire(1, slow_s={"events": 14.0})):
            await world.submit(an_mpijob("a", world.namespace, least=1, most=1, pool=POOL, suspend=True))
            await asyncio.sleep(LateOperator.late_s)
            await world.client.patch(MPIJOBS, (world.namespace, "a"), {"metadata": {"labels": {"touched": "true"}}})
            await asyncio.sleep(60.0)
        return await told(world)


def test_job_whose_pods_come_while_events_are_read_is_not_told_to_lack_them() -> None:
    assert virtually(pods_that_come_while_events_are_read()) == []


async def looks_at_jobs_that_lack_pods(jobs: int) -> tuple[list[float], set[str]]:
    """Look at so many jobs whose operator makes no pods, again and again, where a list of Events takes 14 s.

    Return how long each look takes, and which jobs are reported after all.
    """
    stage, told = Stage(), dict[str, StallReason | None]()
    stage.add_node("n1", gpus=jobs)
    for number in range(jobs):
        stage.add_job(f"job-{number}")
        stage.actuator.desired[f"job-{number}"] = DesiredRun(("n1",))
    watch = StallWatch(
        inventory=stage.inventory,
        actuator=stage.actuator,
        gates=stage.gates,
        clock=stage.clock,
        api=MemoryApi(stage.server, Wire(slow_s={"events": 14.0})),
        recorded_stall=told.get,
        publish=lambda job_id, fact: told.update({job_id: getattr(fact, "reason", None)}),
    )
    took: list[float] = []
    for _ in range(10):
        began = now_s()
        await watch.look(stage.jobs)
        took.append(now_s() - began)
        await asyncio.sleep(30.0)
    return took, set(told)


def test_look_where_the_server_is_slow_with_events_ends_soon_and_the_next_ones_report_the_rest() -> None:
    took, reported = virtually(looks_at_jobs_that_lack_pods(60))
    assert max(took) < 30.0
    assert len(reported) == 60


async def a_job_whose_replicas_were_done() -> list[JobStalled]:
    """Look at a job that lacks a pod: of the two replicas that were done its object counts one; return what is told."""
    stage = Stage()
    stage.add_node("n1", gpus=3)
    stage.add_job("a", workers=3, done=(0, 1), done_of=3)
    stage.change_job("a", {"status": {"completedIndexes": "1"}}, "status")
    stage.watch()
    stage.actuator.desired["a"] = DesiredRun(("n1",) * 3)
    told: list[JobStalled] = []
    watch = StallWatch(
        inventory=stage.inventory,
        actuator=stage.actuator,
        gates=stage.gates,
        clock=stage.clock,
        api=MemoryApi(stage.server),
        recorded_stall=lambda job_id: None,
        publish=lambda job_id, fact: told.append(cast("JobStalled", fact)),
    )
    await watch.look(["a"])
    await asyncio.sleep(SOON_S)
    await watch.look(["a"])
    return told


def test_stall_names_the_replicas_that_were_done_and_are_to_run_again() -> None:
    (stalled,) = virtually(a_job_whose_replicas_were_done())
    assert stalled.run_again == (0,)


async def a_container_that_fails_after_a_while() -> list[str]:
    """Run a job that waits for nothing for a while, and then for its container; return the stalls that are recorded."""
    async with MemoryWorld(1, [MpiOperatorV2]) as world:
        await world.add_node("n1", 1, POOL)
        async with world.replica(Wire(1)):
            await world.submit(an_mpijob("a", world.namespace, least=1, most=1, pool=POOL, suspend=True))
            await asyncio.sleep(60.0)
            await world.client.patch(PODS, (world.namespace, "a-worker-0"), {"status": waiting("OOM")}, "status")
            await asyncio.sleep(120.0)
        return await told(world)


def test_job_that_waited_for_nothing_is_looked_at_again_once_it_changes() -> None:
    assert virtually(a_container_that_fails_after_a_while()) == ["worker 0 on n1: container train does not start: OOM"]
