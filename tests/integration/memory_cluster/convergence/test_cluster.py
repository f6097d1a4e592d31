"""What one pool's cluster makes of actions, on a cluster in memory and on virtual time."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from tests.builders import Log, a_job, a_spec, a_state
from tests.kube.acting import NAMESPACE, Stage
from tests.kube.cluster_bench import FoldedJobs
from tests.kube.memory_api import MemoryApi
from tests.virtual_time import virtually
from voda.cluster.kubernetes.cluster import KubernetesCluster
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.leader_loop import LeaderLoop
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.cluster.kubernetes.setup import KubernetesSetup
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.cluster.kubernetes.state.observations import Observations
from voda.domain.plan import HaltJob, Placement, StartJob
from voda.events.types import JobCanceled, JobSubmitted, WorkerExited
from voda.reconcilers.diff import diff
from voda.reconcilers.resync import missing_facts


async def _trust(pool: str) -> None:
    """Ask nobody: the watch of these tests is never behind."""


def test_job_when_it_shrinks_and_moves_off_a_lost_node_has_its_size_written_once() -> None:
    async def act() -> None:
        stage = Stage()
        cluster = KubernetesCluster(
            "v100", stage.inventory, Observations(stage.inventory, lambda: 0.0), stage.actuator, _trust
        )
        for node in ("n1", "n2"):
            stage.add_node(node)
        stage.add_job("a", workers=4)
        for index, node in enumerate(("n1", "n1", "n2", "n2")):
            stage.add_worker("a", index, node=node, phase="Running")
        stage.remove_pod("a-worker-1")
        stage.watch()
        planned: Placement = {"a": ("n2", "n2")}
        state = a_state(jobs=list(stage.jobs.values()), placement=planned)
        # The dead pods stay for a while, and every round acts on what it sees, as the worker reconciler does.
        for _ in range(5):
            for action in diff(state, await cluster.observe()):
                await cluster.apply(action)
            stage.watch()
            await stage.actuator.converge(["a"])
        sizes = [path for method, path in stage.wire.asked if method == "PATCH"]
        assert len(sizes) == 1, sizes

    virtually(act())


def test_job_whose_workers_wait_for_room_is_shown_as_starting_until_they_have_some_or_it_is_halted() -> None:
    async def act() -> None:
        stage = Stage()
        observations = Observations(stage.inventory, lambda: 0.0)
        cluster = KubernetesCluster("v100", stage.inventory, observations, stage.actuator, _trust)
        stage.add_node("n1", gpus=0)
        stage.add_job("a", workers=1)
        stage.add_job("b", workers=1, pool="other")
        stage.add_worker("a", 0)
        for job_id in "ab":
            await cluster.apply(StartJob(job_id=job_id, nodes=("n1",)))
        assert (await cluster.observe()).starting == ["a"]
        await cluster.apply(HaltJob(job_id="a"))
        assert (await cluster.observe()).starting == []
        await cluster.apply(StartJob(job_id="a", nodes=("n1",)))
        stage.remove_pod("a-worker-0")
        stage.add_worker("a", 0, node="n1", phase="Running")
        assert (await cluster.observe()).starting == []

    virtually(act())


def a_plain_job(**status: Any) -> JobObject:
    metadata = {"name": "a", "namespace": "ns", "uid": "u1", "annotations": {"voda.dev/job-id": "a"}}
    spec = {"parallelism": 2, "completions": 2}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, JobObject)


def a_replica(number: int, name: str, phase: str) -> Pod:
    labels, notes = {"batch.kubernetes.io/job-name": "a"}, {"voda.dev/job-id": "a"}
    metadata = {"name": f"a-{number}-{name}", "namespace": "ns", "uid": name, "labels": labels, "annotations": notes}
    spec = {"nodeName": "n1", "containers": [{"name": "train"}]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


def test_replica_that_its_job_counts_as_completed_has_finished_whatever_is_left_of_its_pods() -> None:
    async def act() -> None:
        stage = Stage()
        observations = Observations(stage.inventory, lambda: 0.0)
        cluster = KubernetesCluster("v100", stage.inventory, observations, stage.actuator, _trust)
        stage.add_node("n1")
        fields: dict[str, Any] = {"kind": "Job", "pool": "v100", "namespace": "ns", "name": "a", "uid": "u1"}
        job = stage.jobs["a"] = a_job("a", workers={0: "n1", 1: "n1"}, **fields)
        stage.inventory.put_object("u1", IndexedJobV1(), a_plain_job(completedIndexes="1"))
        # Of replica 1 only a pod that failed before is left: somebody deleted the other one while nobody led.
        for pod in (a_replica(0, "aaaaa", "Running"), a_replica(1, "bbbbb", "Failed")):
            stage.inventory.put_pod(pod.metadata.key, pod)
        nodes = stage.inventory.stock.pool_nodes("v100")
        state = a_state(jobs=[job], nodes=list(nodes.values()), placement={"a": ("n1", "n1")})
        missing = missing_facts(state, await cluster.observe())
        assert missing == (WorkerExited(job_id="a", workers=(1,), cause="finished"),)

    virtually(act())


def test_workers_of_a_job_that_the_log_lacks_may_go_between_a_look_and_what_is_made_of_it() -> None:
    async def act() -> None:
        stage = Stage()
        cluster = KubernetesCluster(
            "v100", stage.inventory, Observations(stage.inventory, lambda: 0.0), stage.actuator, _trust
        )
        stage.add_node("n1")
        stage.add_worker("gone", 0, node="n1", phase="Running")
        stage.watch()
        observed = await cluster.observe()
        assert observed.workers == {"gone": {0: "n1"}}
        stage.remove_pod("gone-worker-0")
        stage.watch()
        assert observed.gpus_per_replica["gone"] == 1

    virtually(act())


def test_object_of_a_job_that_ended_before_a_leader_came_is_deleted_at_once() -> None:
    async def act() -> None:
        stage, log, jobs = Stage(), Log(), FoldedJobs()
        stage.add_job("a")
        del stage.jobs["a"]
        for fact in (JobSubmitted(spec=a_spec("a", pool="v100", namespace=NAMESPACE)), JobCanceled(job_id="a")):
            jobs.apply(log.add(fact, at=stage.clock.now()))
        setup = KubernetesSetup(rule=PoolRule(), clock=stage.clock, log=jobs)
        leader = LeaderLoop(MemoryApi(stage.server), stage.inventory, setup, lambda _pool, _fact: None)
        leader.begin()
        # Nothing else happens meanwhile, and the next sweep is seconds away.
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await leader.run()
        assert stage.job("a") is None

    virtually(act())
