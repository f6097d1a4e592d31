"""The stand-in for training-operator's PyTorchJob keeps what is known of it, on the real API server."""

from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.objects import a_pytorchjob
from tests.kube.operators.base import JOB_ROLE, REPLICA_INDEX, REPLICA_TYPE
from tests.kube.stand_in_world import StandInWorld

KIND = "PyTorchJob"


async def a_running_job(world: StandInWorld, workers: int = 2, **changes: object) -> None:
    await world.add_node("n1")
    await world.submit(a_pytorchjob("digits", world.namespace, workers, **changes))
    await world.until_condition("digits", "Running", KIND)
    await world.until_running("digits", workers + (1 if changes.get("masters") else 0))


async def scale(world: StandInWorld, workers: int) -> None:
    await world.client.patch(
        api.PYTORCHJOBS, (world.namespace, "digits"), {"spec": {"replicas": workers}}, subresource="scale"
    )


async def uid_of(world: StandInWorld, pod: str) -> str:
    found = await world.client.find(api.PODS, pod, world.namespace)
    return "" if found is None else str(found["metadata"]["uid"])


async def until_another(world: StandInWorld, pod: str, old: str) -> None:
    async def is_another() -> bool:
        return await uid_of(world, pod) not in ("", old)

    await world.until_it_is(is_another)


async def test_torch_job_when_submitted_gets_pods_and_services(world: StandInWorld) -> None:
    await a_running_job(world, least=1, most=4)
    pod = await world.client.get(api.PODS, "digits-worker-1", world.namespace)
    labels = pod["metadata"]["labels"]
    assert (labels[REPLICA_TYPE], labels[REPLICA_INDEX]) == ("worker", "1")
    env = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}
    assert (env["PET_NNODES"], env["PET_RDZV_ENDPOINT"]) == ("1:4", "digits-worker-0:23456")
    assert await world.client.find(api.SERVICES, "digits-worker-1", world.namespace) is not None


async def test_torch_job_when_it_has_a_master_labels_it(world: StandInWorld) -> None:
    await a_running_job(world, workers=1, masters=1)
    master = await world.client.get(api.PODS, "digits-master-0", world.namespace)
    assert master["metadata"]["labels"][JOB_ROLE] == "master"


async def test_torch_job_when_scaled_through_its_subresource_follows(world: StandInWorld) -> None:
    await a_running_job(world, workers=3)
    await scale(world, 1)
    await world.until_running("digits", 1)
    assert await world.running_workers("digits") == ["digits-worker-0"]
    await scale(world, 2)
    await world.until_running("digits", 2)


async def test_torch_job_when_asked_for_its_scale_tells_what_is_active(world: StandInWorld) -> None:
    await a_running_job(world)

    async def scale_of() -> Object:
        return await world.client.request("GET", api.PYTORCHJOBS.path(world.namespace, "digits", "scale"))

    async def is_told() -> bool:
        return bool((await scale_of())["status"]["replicas"] == 2)

    await world.until_it_is(is_told)
    assert "training.kubeflow.org/replica-type=worker" in (await scale_of())["status"]["selector"]


async def test_torch_job_when_one_elastic_worker_ends_well_succeeds(world: StandInWorld) -> None:
    job = a_pytorchjob("digits", world.namespace)
    await world.add_node("n1")
    await world.submit(job)
    await world.until_running("digits", 2)
    await world.kubelet.exit(world.namespace, "digits-worker-1")
    await world.until_condition("digits", "Succeeded", KIND)
    assert "completionTime" in (await world.job("digits", KIND))["status"]


async def test_torch_job_when_its_master_ends_well_succeeds(world: StandInWorld) -> None:
    await a_running_job(world, workers=1, masters=1)
    await world.kubelet.exit(world.namespace, "digits-master-0")
    await world.until_condition("digits", "Succeeded", KIND)


async def test_torch_worker_when_its_program_fails_is_restarted_in_its_pod(world: StandInWorld) -> None:
    await a_running_job(world)
    old = await uid_of(world, "digits-worker-1")
    await world.kubelet.exit(world.namespace, "digits-worker-1", 1)
    pod = await world.client.get(api.PODS, "digits-worker-1", world.namespace)
    assert (pod["metadata"]["uid"], pod["status"]["phase"]) == (old, "Running")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


async def test_torch_worker_when_evicted_is_made_again(world: StandInWorld) -> None:
    await a_running_job(world)
    old = await uid_of(world, "digits-worker-1")
    await world.kubelet.evict(world.namespace, "digits-worker-1")
    await until_another(world, "digits-worker-1", old)
    await world.until_running("digits", 2)
    await world.until_condition("digits", "Running", KIND)
    assert not await world.has_condition("digits", "Failed", KIND)


async def test_torch_worker_when_it_fails_retryably_under_exit_code_is_made_again(world: StandInWorld) -> None:
    await a_running_job(world, restart="ExitCode")
    old = await uid_of(world, "digits-worker-1")
    await world.kubelet.exit(world.namespace, "digits-worker-1", 137)
    await until_another(world, "digits-worker-1", old)
    await world.until_running("digits", 2)


async def test_torch_worker_when_it_fails_for_good_under_exit_code_fails_the_job(world: StandInWorld) -> None:
    await a_running_job(world, restart="ExitCode")
    await world.kubelet.exit(world.namespace, "digits-worker-1", 1)
    await world.until_condition("digits", "Failed", KIND)


async def test_torch_worker_when_deleted_under_never_fails_the_job(world: StandInWorld) -> None:
    world.kubelet.grace_s = 0.5
    await a_running_job(world, restart="Never")
    await world.client.delete(api.PODS, "digits-worker-1", world.namespace)
    await world.until_condition("digits", "Failed", KIND)
    assert "completionTime" in (await world.job("digits", KIND))["status"]


async def test_torch_worker_when_deleted_under_on_failure_is_made_again(world: StandInWorld) -> None:
    await a_running_job(world)
    old = await uid_of(world, "digits-worker-1")
    await world.client.delete(api.PODS, "digits-worker-1", world.namespace)
    await until_another(world, "digits-worker-1", old)
    await world.until_running("digits", 2)
    assert not await world.has_condition("digits", "Failed", KIND)


async def test_torch_job_when_suspended_loses_pods_and_services_and_comes_back(world: StandInWorld) -> None:
    await a_running_job(world)
    key = (world.namespace, "digits")
    await world.client.patch(api.PYTORCHJOBS, key, {"spec": {"runPolicy": {"suspend": True}}})
    await world.until_gone("digits")
    await world.until_condition("digits", "Suspended", KIND)
    assert await world.client.find(api.SERVICES, "digits-worker-1", world.namespace) is None
    await world.client.patch(api.PYTORCHJOBS, key, {"spec": {"runPolicy": {"suspend": False}}})
    await world.until_running("digits", 2)
    await world.until_condition("digits", "Running", KIND)
