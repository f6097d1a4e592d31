"""What job kinds write is taken by a real API server with the operators' own definitions, and kept as a whole."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from tests.kube.client import NAMESPACES, Client, Object, Refused, Resource
from tests.kube.control_plane import ControlPlane
from tests.kube.merge_patch import apply_patch
from tests.manifests import a_torch_job, an_mpi_job
from voda.cluster.kubernetes.kinds.base import JobKind, Patch
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.kinds.served_kinds import VERSION_PATHS, served
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.cluster.kubernetes.objects import JobObject
from voda.domain.job import JobSpec
from voda.manifests.parse import parse

EXAMPLES = Path(__file__).parents[3] / "examples"
ENVIRONMENT = {"VODA_JOB_ID": "digits", "VODA_API_URL": "http://voda.voda:8080", "VODA_JOB_TOKEN": "t.0"}
ELASTIC = {"voda.dev/min-replicas": "1", "voda.dev/max-replicas": "4"}
NAMESPACE = "kinds"
MPI, TORCH = "MPIJob", "PyTorchJob"


def an_example(path: str) -> Object:
    found: Object = yaml.safe_load((EXAMPLES / path).read_text())
    return found


def rich_mpi(api_version: str) -> Object:
    """Return an MPIJob that says much: nulls, fractions, sidecars, volumes, placement and policies."""
    manifest = an_mpi_job(
        api_version=api_version,
        annotations=ELASTIC,
        env={"OUT": "/out/$(VODA_JOB_ID)"},
        worker={"env": None, "resources": {"limits": {"cpu": 0.5, "memory": "1Gi", "nvidia.com/gpu": 1}}},
        spec={"slotsPerWorker": 2, "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 3, "suspend": False}},
    )
    worker = manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    worker["metadata"] = {"labels": {"team": "vision"}, "annotations": {"sidecar.istio.io/inject": "false"}}
    worker["spec"] |= {
        "schedulerName": "volcano",
        "tolerations": [{"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    }
    worker["spec"]["containers"].append(
        {"name": "sidecar", "image": "proxy", "ports": [{"containerPort": 80, "protocol": "TCP"}]}
    )
    return manifest


def manifests_of_mpi() -> list[Object]:
    versions = ("kubeflow.org/v2beta1", "kubeflow.org/v1")
    plain = [an_mpi_job(api_version=version) for version in versions]
    only_v2 = {"sshAuthMountPath": "/home/mpi/.ssh", "launcherCreationPolicy": "WaitForWorkersReady"}
    only_v1 = {"mainContainer": "worker", "cleanPodPolicy": "All"}
    others = [an_mpi_job(spec=only_v2), an_mpi_job(api_version=versions[1], spec=only_v1)]
    return [*plain, *map(rich_mpi, versions), *others, an_example("digits-mpi/job.yaml")]


def manifests_of_torch() -> list[Object]:
    elastic = {"minReplicas": 1, "maxReplicas": 3, "rdzvConf": [{"key": "last_call_timeout", "value": "5"}]}
    return [
        a_torch_job(),
        a_torch_job(masters=1, replicas=0),
        a_torch_job(masters=1, annotations=ELASTIC, spec={"nprocPerNode": 2}),
        a_torch_job(spec={"elasticPolicy": elastic, "runPolicy": None}),
        an_example("digits-torch/job.yaml"),
        an_example("kubernetes/digits.yaml"),
        an_example("kubernetes/digits-cpu.yaml"),
    ]


class Jobs:
    """Job objects of one cluster, as one kind writes them."""

    def __init__(self, client: Client, kind: JobKind) -> None:
        self.client = client
        self.kind = kind
        self.resource = Resource(kind.name, kind.api_version, kind.kind.plural)

    async def make(self, body: Object) -> Object:
        """Create an object, whatever had its name before."""
        await self.client.delete(self.resource, body["metadata"]["name"], NAMESPACE)
        body = {**body, "metadata": {**body["metadata"], "namespace": NAMESPACE}}
        return await self.client.create(self.resource, body)

    async def patch(self, patch: Patch, name: str = "digits") -> Object:
        """Send a patch."""
        return await self.client.patch(self.resource, (NAMESPACE, name), patch.body, patch.subresource)

    async def read(self, name: str = "digits") -> JobObject:
        """Return an object as voda reads it."""
        return msgspec.convert(await self.client.get(self.resource, name, NAMESPACE), JobObject)


Planes = Callable[[JobKind], Jobs]


@pytest.fixture
async def jobs(request: pytest.FixtureRequest) -> AsyncIterator[Planes]:
    """Return what makes jobs of a kind, where that kind is served; they are gone when the test ends."""
    planes: list[ControlPlane] = [request.getfixturevalue(name) for name in ("control_plane", "control_plane_v1")]
    async with Client(planes[0]) as first, Client(planes[1]) as second:
        for client in (first, second):
            if await client.find(NAMESPACES, NAMESPACE) is None:
                await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})

        def of_kind(kind: JobKind) -> Jobs:
            return Jobs(second if isinstance(kind, MPIJobV1) else first, kind)

        yield of_kind
        for kind in (MPIJobV2(), MPIJobV1(), PyTorchJobV1()):
            made = of_kind(kind)
            await made.client.delete_all(made.resource, NAMESPACE)


def spec_of(manifest: Object) -> JobSpec:
    return replace(parse(manifest).spec, namespace=NAMESPACE)


def every_kind() -> list[tuple[JobKind, Object]]:
    mpi = [(kind, manifest) for kind in (MPIJobV2(), MPIJobV1()) for manifest in manifests_of_mpi()]
    return [*mpi, *((PyTorchJobV1(), manifest) for manifest in manifests_of_torch())]


def resized_kinds() -> list[tuple[JobKind, Object]]:
    return [
        (MPIJobV2(), an_mpi_job(annotations=ELASTIC)),
        (MPIJobV1(), an_mpi_job(api_version="kubeflow.org/v1", annotations=ELASTIC)),
        (PyTorchJobV1(), a_torch_job(annotations=ELASTIC)),
        (PyTorchJobV1(), a_torch_job(masters=1, replicas=1, annotations=ELASTIC)),
    ]


def of_one_version(kind: JobKind, manifest: Object) -> bool:
    return bool(manifest["apiVersion"] == kind.api_version)


async def test_every_object_that_voda_makes_is_taken_and_nothing_of_it_is_dropped(jobs: Planes) -> None:
    for kind, manifest in every_kind():
        body = kind.new_object(spec_of(manifest), GPU_TAINTS, ENVIRONMENT)
        stored = await jobs(kind).make(body)
        # The server only adds: a patch of all that was sent changes nothing.
        assert apply_patch(stored, body) == stored, (kind.api_version, manifest)
        assert msgspec.convert(stored, JobObject).spec.run_policy.suspend


async def test_object_of_a_users_own_is_made_ready_by_one_patch_and_then_left_alone(jobs: Planes) -> None:
    for kind, manifest in every_kind():
        if not of_one_version(kind, manifest):
            continue
        body = kind.new_object(spec_of(manifest), GPU_TAINTS, {})
        body["metadata"] |= {"labels": {"voda.dev/managed": "true"}, "annotations": {"team": "vision"}}
        body["spec"]["runPolicy"]["suspend"] = False
        mine, spec = jobs(kind), spec_of(manifest)
        stored = await mine.make(body)
        name = stored["metadata"]["name"]
        ready = await mine.patch(kind.adoption_patch(stored, spec, GPU_TAINTS, ENVIRONMENT), name)
        assert kind.adoption_patch(ready, spec, GPU_TAINTS, ENVIRONMENT).body == {}
        elastic = ready["spec"].get("elasticPolicy")
        bounds = f"{elastic['minReplicas']}-{elastic['maxReplicas']}" if elastic else ""
        noted = {"voda.dev/recorded-bounds": bounds} if elastic else {}
        assert ready["metadata"]["annotations"] == {"team": "vision", "voda.dev/job-id": spec.job_id, **noted}
        assert msgspec.convert(ready, JobObject).spec.run_policy.suspend
        specs = ready["spec"].get("mpiReplicaSpecs") or ready["spec"]["pytorchReplicaSpecs"]
        for role in specs.values():
            for container in role["template"]["spec"]["containers"]:
                assert {"name": "VODA_JOB_ID", "value": "digits"} in container["env"]


@pytest.mark.parametrize(("kind", "manifest"), resized_kinds())
async def test_adoption_of_an_object_that_changed_meanwhile_is_refused(
    jobs: Planes, kind: JobKind, manifest: Object
) -> None:
    mine, body = jobs(kind), dict(manifest)
    stored = await mine.make(body)
    await mine.patch(Patch(body={"metadata": {"labels": {"team": "vision"}}}))
    with pytest.raises(Refused) as refused:
        await mine.patch(kind.adoption_patch(stored, spec_of(manifest), GPU_TAINTS, ENVIRONMENT))
    assert refused.value.status == 409


@pytest.mark.parametrize(("kind", "manifest"), resized_kinds())
async def test_job_is_resumed_resized_and_halted_as_it_reads_afterwards(
    jobs: Planes, kind: JobKind, manifest: Object
) -> None:
    mine, spec = jobs(kind), spec_of(manifest)
    await mine.make(kind.new_object(spec, GPU_TAINTS, ENVIRONMENT))

    async def now() -> tuple[bool, int]:
        job = await mine.read()
        return job.spec.run_policy.suspend, kind.replicas(job)

    assert await now() == (True, 2)
    await mine.patch(kind.resume_patch(await mine.read(), spec, 3))
    assert await now() == (False, 3)
    job = await mine.read()
    assert kind.can_resize(job, 4) is not kind.starts_together(job)
    # Beside a Master a worker stays, which is spare.
    least = 1 + (kind.least_workers if "Master" in str(manifest) else 0)
    for size, shown in ((4, 4), (1, least)):
        await mine.patch(kind.resize_patch(await mine.read(), size))
        assert await now() == (False, shown)
    await mine.patch(kind.suspend_patch())
    assert await now() == (True, least)


async def test_kinds_are_found_by_what_each_server_serves(jobs: Planes) -> None:
    for served_mpi in (MPIJobV2(), MPIJobV1()):
        client = jobs(served_mpi).client
        found = served({path: await _discovered(client, path) for path in VERSION_PATHS})
        assert {name: type(kind) for name, kind in found.items()} == {
            MPI: type(served_mpi),
            TORCH: PyTorchJobV1,
            "Job": IndexedJobV1,
        }


async def _discovered(client: Client, path: str) -> Object | None:
    try:
        return await client.request("GET", path)
    except Refused:
        return None
