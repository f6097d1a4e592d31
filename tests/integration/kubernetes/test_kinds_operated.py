"""What operators make of what job kinds write, and what job kinds read from what operators write."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.kube.client import PODS, Object, Refused, Resource
from tests.kube.world import World
from tests.manifests import a_torch_job, an_mpi_job
from voda.cluster.kubernetes.kinds.base import JobKind, Patch, object_size
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.operator_pods import index, is_launcher
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.domain.job import JobSpec
from voda.events.text.failures import failure_text
from voda.events.types import JobCompleted, JobFailed
from voda.manifests.parse import parse

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
ELASTIC = {"voda.dev/min-replicas": "1", "voda.dev/max-replicas": "4"}
NEVER_AGAIN = {"runPolicy": {"backoffLimit": 0}}


class Running:
    """A job of two replicas that was made by voda's hand and let go to a node."""

    def __init__(self, world: World, kind: JobKind, manifest: Object) -> None:
        self.world = world
        self.kind = kind
        self.spec: JobSpec = replace(parse(manifest).spec, namespace=world.namespace)
        self._resource = Resource(kind.name, kind.api_version, kind.kind.plural)

    async def start(self) -> None:
        await self.world.add_node("n1")
        await self.world.submit(self.kind.new_object(self.spec, GPU_TAINTS, {"VODA_JOB_ID": "digits"}))
        await self.resume(2)

    async def resume(self, replicas: int) -> None:
        job, _ = await self.read()
        await self.patch(self.kind.resume_patch(job, self.spec, replicas))
        await self.bound(replicas)
        await self.world.until_condition("digits", "Running", self.kind.name)

    async def bound(self, replicas: int) -> None:
        """Let replicas go to their node as they come, until that many run and no other is there."""

        async def all_run() -> bool:
            _, pods = await self.read()
            workers = [pod for pod in pods if index(pod) is not None]
            for pod in workers:
                if pod.gates:
                    try:
                        await self.world.let_go(pod.metadata.name, "n1")
                    except Refused as refused:
                        # One that failed may be gone meanwhile, and its operator makes another.
                        if refused.status != 404:
                            raise
            return len(workers) == replicas and all(pod.status.phase == "Running" for pod in workers)

        await self.world.until_it_is(all_run)

    async def patch(self, patch: Patch) -> None:
        key = (self.world.namespace, "digits")
        await self.world.client.patch(self._resource, key, patch.body, patch.subresource)

    async def read(self) -> tuple[JobObject, Sequence[Pod]]:
        """Return the object and its pods as voda reads them."""
        job = await self.world.client.get(self._resource, "digits", self.world.namespace)
        pods = await self.world.pods_of("digits")
        return msgspec.convert(job, JobObject), [msgspec.convert(pod, Pod) for pod in pods]

    async def end(self) -> JobCompleted | JobFailed | None:
        job, pods = await self.read()
        return self.kind.end(job, pods, "digits")

    async def is_broken(self) -> bool:
        return self.kind.is_broken(*await self.read())

    async def evict(self, pod: str) -> None:
        await self.world.kubelet.evict(self.world.namespace, pod)

    async def exit(self, pod: str, code: int) -> None:
        await self.world.kubelet.exit(self.world.namespace, pod, code)

    async def until(self, condition: str) -> None:
        await self.world.until_condition("digits", condition, self.kind.name)


async def started(world: World, kind: JobKind, manifest: Object) -> Running:
    job = Running(world, kind, manifest)
    await job.start()
    return job


def mpi(**changes: Any) -> Object:
    return an_mpi_job(worker=GPU, annotations=ELASTIC, **changes)


def torch(restart_policy: str = "OnFailure", **changes: Any) -> Object:
    manifest = a_torch_job(container=GPU, annotations=ELASTIC, **changes)
    for role in manifest["spec"]["pytorchReplicaSpecs"].values():
        role["restartPolicy"] = restart_policy
    return manifest


@pytest.mark.parametrize(
    ("kind", "manifest"),
    [(MPIJobV2(), mpi()), (PyTorchJobV1(), torch()), (PyTorchJobV1(), torch(masters=1, replicas=1))],
)
async def test_job_is_started_resized_halted_and_resumed(world: World, kind: JobKind, manifest: Object) -> None:
    await _live_through(await started(world, kind, manifest))


async def test_v1_job_is_started_resized_halted_and_resumed(world_v1: World) -> None:
    await _live_through(await started(world_v1, MPIJobV1(), mpi(api_version="kubeflow.org/v1")))


async def _live_through(job: Running) -> None:
    for size in (3, 1):
        object_now, _ = await job.read()
        await job.patch(job.kind.resize_patch(object_now, size))
        asked = object_size(job.kind, object_now, size)
        await job.bound(asked)
        _, pods = await job.read()
        indices = {index(pod) for pod in pods if not is_launcher(pod)}
        assert indices == set(range(asked))
    await job.patch(job.kind.suspend_patch())
    await job.world.until_gone("digits")
    assert await job.end() is None
    await job.resume(4)
    assert await job.end() is None


# ---- ends


async def test_v2_job_ends_as_its_launcher_does(world: World) -> None:
    manifest = mpi(spec=NEVER_AGAIN)
    # Of a launcher that is restarted in place, the Job controller deletes the pod, and its exit code with it.
    manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never"
    job = await started(world, MPIJobV2(), manifest)
    await world.end_launcher("digits", 3)
    await job.until("Failed")
    end = await job.end()
    assert isinstance(end, JobFailed)
    assert "ended with exit code 3; it failed more often than backoffLimit allows" in failure_text(end.reason)


async def test_v2_job_goes_on_without_an_evicted_worker_and_completes(world: World) -> None:
    job = await started(world, MPIJobV2(), mpi())
    await job.evict("digits-worker-1")
    await job.until("Failed")
    assert await job.end() is None
    assert not await job.is_broken()
    await world.client.delete(PODS, "digits-worker-1", world.namespace)
    await job.bound(2)
    await world.end_launcher("digits")
    await job.until("Succeeded")
    assert await job.end() == JobCompleted(job_id="digits")


async def test_v1_job_goes_on_without_a_worker_that_failed_by_itself(world_v1: World) -> None:
    job = await started(world_v1, MPIJobV1(), mpi(api_version="kubeflow.org/v1"))
    await job.exit("digits-worker-1", 1)
    await world_v1.until_restarting("digits")
    assert await job.end() is None
    assert not await job.is_broken()
    await world_v1.client.delete(PODS, "digits-worker-1", world_v1.namespace)
    await job.bound(2)
    await world_v1.end_launcher("digits")
    await job.until("Succeeded")
    assert await job.end() == JobCompleted(job_id="digits")


async def test_v1_job_is_broken_by_an_evicted_worker(world_v1: World) -> None:
    job = await started(world_v1, MPIJobV1(), mpi(api_version="kubeflow.org/v1"))
    await job.evict("digits-worker-0")
    await job.until("Failed")
    assert await job.is_broken()
    assert await job.end() is None


async def test_v1_job_fails_with_its_launcher(world_v1: World) -> None:
    job = await started(world_v1, MPIJobV1(), mpi(api_version="kubeflow.org/v1"))
    await world_v1.end_launcher("digits", 3)
    await job.until("Failed")
    end = await job.end()
    assert isinstance(end, JobFailed)
    assert failure_text(end.reason) == "digits-launcher ended with exit code 3"


async def uids(world: World) -> list[str]:
    return [pod["metadata"]["uid"] for pod in await world.workers_of("digits")]


async def test_torch_job_that_is_never_restarted_survives_an_eviction(world: World) -> None:
    # Made ready it has ExitCode, which tells a pod that was lost from a program that failed.
    job = await started(world, PyTorchJobV1(), torch("Never"))
    before = await uids(world)
    await job.evict("digits-worker-1")

    async def is_made_anew() -> bool:
        now = await uids(world)
        return len(now) == len(before) and now != before

    await world.until_it_is(is_made_anew)
    assert not await job.is_broken()
    assert await job.end() is None


async def test_torch_job_that_is_never_restarted_fails_with_its_worker(world: World) -> None:
    job = await started(world, PyTorchJobV1(), torch("Never"))
    await job.exit("digits-worker-1", 7)
    await job.until("Failed")
    end = await job.end()
    assert isinstance(end, JobFailed)
    assert failure_text(end.reason).startswith("digits-worker-1 ended with exit code 7")


async def test_elastic_torch_job_is_done_when_any_worker_is(world: World) -> None:
    job = await started(world, PyTorchJobV1(), torch())
    await job.exit("digits-worker-1", 0)
    await job.until("Succeeded")
    assert await job.end() == JobCompleted(job_id="digits")
