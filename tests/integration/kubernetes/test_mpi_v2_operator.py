"""The stand-in for mpi-operator keeps what is known of it, on the real API server with the real Job controller."""

from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.objects import an_mpijob
from tests.kube.operators.base import JOB_NAME, JOB_ROLE, OPERATOR_NAME, REPLICA_INDEX
from tests.kube.world import World


async def a_running_job(world: World, workers: int = 2, **changes: object) -> None:
    await world.add_node("n1", gpus=16)
    await world.submit(an_mpijob("digits", world.namespace, workers, **changes))
    await world.until_condition("digits", "Running")
    await world.until_running("digits", workers)


async def scale(world: World, workers: int, **policy: object) -> None:
    spec = {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}, **({"runPolicy": policy} if policy else {})}
    await world.client.patch(api.MPIJOBS, (world.namespace, "digits"), {"spec": spec})


async def suspend(world: World, is_suspended: bool = True) -> None:
    await world.client.patch(
        api.MPIJOBS, (world.namespace, "digits"), {"spec": {"runPolicy": {"suspend": is_suspended}}}
    )


async def counts(world: World, role: str) -> Object:
    return dict((await world.job("digits"))["status"].get("replicaStatuses", {}).get(role, {}))


async def test_v2_job_when_submitted_gets_workers_and_a_launcher_job(world: World) -> None:
    await a_running_job(world)
    worker = await world.client.get(api.PODS, "digits-worker-1", world.namespace)
    labels = worker["metadata"]["labels"]
    assert (labels[OPERATOR_NAME], labels[JOB_NAME], labels[JOB_ROLE], labels[REPLICA_INDEX]) == (
        *("mpi-operator", "digits", "worker"),
        "1",
    )
    assert api.controller_of(worker)["uid"] == (await world.job("digits"))["metadata"]["uid"]
    launcher = await world.launcher_of("digits")
    assert launcher is not None
    assert api.controller_of(launcher)["name"] == "digits-launcher"


async def test_v2_job_when_submitted_gets_service_hostfile_and_keys(world: World) -> None:
    await a_running_job(world)
    home = f"digits.{world.namespace}.svc"
    config = await world.client.get(api.CONFIG_MAPS, "digits-config", world.namespace)
    assert config["data"]["hostfile"] == f"digits-worker-0.{home} slots=1\ndigits-worker-1.{home} slots=1\n"
    assert (await world.client.get(api.SERVICES, "digits", world.namespace))["spec"]["clusterIP"] == "None"
    assert (await world.client.get(api.SECRETS, "digits-ssh", world.namespace))["type"] == "kubernetes.io/ssh-auth"


async def test_v2_hosts_when_workers_run_are_listed_without_slots_in_the_order_of_names(world: World) -> None:
    await a_running_job(world, workers=11)

    async def are_listed() -> bool:
        config = await world.client.get(api.CONFIG_MAPS, "digits-config", world.namespace)
        names = [line.split()[1].split(".")[0] for line in config["data"]["discover_hosts.sh"].splitlines()[1:]]
        return names == sorted(f"digits-worker-{index}" for index in range(11))

    await world.until_it_is(are_listed)


async def test_v2_job_when_launcher_ends_well_succeeds_and_keeps_its_workers(world: World) -> None:
    await a_running_job(world)
    await world.end_launcher("digits")
    await world.until_condition("digits", "Succeeded")
    assert "completionTime" in (await world.job("digits"))["status"]
    assert not await world.has_condition("digits", "Running")
    assert len(await world.running_workers("digits")) == 2


async def test_v2_job_when_it_cleans_up_loses_its_workers_and_keeps_its_launcher(world: World) -> None:
    await a_running_job(world, policy={"cleanPodPolicy": "All"})
    await world.end_launcher("digits")
    await world.until_running("digits", 0)
    assert len(await world.pods_of("digits")) == 1


async def test_v2_job_when_launcher_fails_for_good_fails_with_the_launcher_jobs_reason(world: World) -> None:
    job = an_mpijob("digits", world.namespace, policy={"backoffLimit": 0})
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never"
    await world.add_node("n1")
    await world.submit(job)
    await world.end_launcher("digits", exit_code=3)
    await world.until_condition("digits", "Failed")
    failed = await world.condition("digits", "Failed")
    assert failed is not None
    assert failed["reason"] == "BackoffLimitExceeded"
    assert (await counts(world, "Launcher"))["failed"] == 1


async def test_v2_job_when_scaled_down_loses_its_highest_workers(world: World) -> None:
    await a_running_job(world, workers=4)
    await scale(world, 2)
    await world.until_running("digits", 2)
    assert await world.running_workers("digits") == ["digits-worker-0", "digits-worker-1"]


async def test_v2_job_when_scaled_up_stays_running_and_gets_the_missing_names(world: World) -> None:
    await a_running_job(world, workers=1)
    await scale(world, 3)
    await world.until_running("digits", 3)
    assert await world.has_condition("digits", "Running")


async def test_v2_worker_when_deleted_is_made_again_under_its_name(world: World) -> None:
    await a_running_job(world)
    old = await world.client.get(api.PODS, "digits-worker-0", world.namespace)
    await world.client.delete(api.PODS, "digits-worker-0", world.namespace)

    async def is_another() -> bool:
        found = await world.client.find(api.PODS, "digits-worker-0", world.namespace)
        return found is not None and found["metadata"]["uid"] != old["metadata"]["uid"]

    await world.until_it_is(is_another)
    await world.until_running("digits", 2)


async def test_v2_worker_when_it_failed_is_counted_and_left_alone(world: World) -> None:
    await a_running_job(world)
    await world.kubelet.exit(world.namespace, "digits-worker-0", 1)

    async def is_counted() -> bool:
        return (await counts(world, "Worker")).get("failed") == 1

    await world.until_it_is(is_counted)
    pod = await world.client.get(api.PODS, "digits-worker-0", world.namespace)
    assert pod["status"]["phase"] == "Failed"
    assert not await world.has_condition("digits", "Failed")


async def test_v2_worker_when_evicted_marks_the_job_failed_without_an_end(world: World) -> None:
    await a_running_job(world)
    await world.kubelet.evict(world.namespace, "digits-worker-1")
    await world.until_condition("digits", "Failed")
    failed = await world.condition("digits", "Failed")
    assert failed is not None
    assert failed["reason"] == "MPIJobEvicted"
    assert "completionTime" not in (await world.job("digits"))["status"]
    assert await world.running_workers("digits") == ["digits-worker-0"]


async def test_v2_worker_when_evicted_and_deleted_is_made_again_and_the_mark_stays(world: World) -> None:
    await a_running_job(world)
    await world.kubelet.evict(world.namespace, "digits-worker-1")
    await world.until_condition("digits", "Failed")
    await world.client.delete(api.PODS, "digits-worker-1", world.namespace)
    await world.until_running("digits", 2)
    assert await world.has_condition("digits", "Failed")


async def test_v2_job_when_suspended_loses_its_pods_and_keeps_its_launcher_job(world: World) -> None:
    await a_running_job(world)
    await suspend(world)
    await world.until_gone("digits")
    await world.until_condition("digits", "Suspended")
    assert not await world.has_condition("digits", "Running")
    assert await world.client.find(api.JOBS, "digits-launcher", world.namespace) is not None


async def test_v2_job_when_resumed_runs_again_and_is_marked_so(world: World) -> None:
    await a_running_job(world)
    await suspend(world)
    await world.until_gone("digits")
    await world.until_condition("digits", "Suspended")
    await suspend(world, False)
    await world.until_running("digits", 2)
    await world.until_condition("digits", "Running")
    resumed = await world.condition("digits", "Suspended")
    assert resumed is not None
    assert (resumed["status"], resumed["reason"]) == ("False", "MPIJobResumed")


async def test_v2_job_when_submitted_suspended_has_a_launcher_job_and_no_pods(world: World) -> None:
    await world.submit(an_mpijob("digits", world.namespace, suspend=True))
    await world.until_condition("digits", "Suspended")
    assert await world.client.find(api.JOBS, "digits-launcher", world.namespace) is not None
    assert await world.pods_of("digits") == []
    assert "startTime" not in (await world.job("digits"))["status"]


async def test_v2_launcher_when_its_template_changes_after_the_job_was_made_runs_as_it_was(world: World) -> None:
    await world.add_node("n1")
    await world.submit(an_mpijob("digits", world.namespace, suspend=True))
    await world.until_condition("digits", "Suspended")
    job = await world.job("digits")
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["image"] = "other"
    job["spec"]["runPolicy"]["suspend"] = False
    await world.client.patch(api.MPIJOBS, (world.namespace, "digits"), {"spec": job["spec"]})
    await world.until_condition("digits", "Running")
    launcher = await world.launcher_of("digits")
    assert launcher is not None
    assert launcher["spec"]["containers"][0]["image"] == "train"


async def test_v2_launcher_job_when_deleted_is_made_again_from_the_template_there_is(world: World) -> None:
    await a_running_job(world)
    old = await world.client.get(api.JOBS, "digits-launcher", world.namespace)
    await world.client.delete(api.JOBS, "digits-launcher", world.namespace)

    async def is_another() -> bool:
        found = await world.client.find(api.JOBS, "digits-launcher", world.namespace)
        return found is not None and found["metadata"]["uid"] != old["metadata"]["uid"]

    await world.until_it_is(is_another)


async def test_v2_job_when_scaled_down_by_the_patch_that_suspends_leaves_workers_behind(world: World) -> None:
    await a_running_job(world, workers=3)
    await scale(world, 1, suspend=True)
    await world.until_condition("digits", "Suspended")

    async def is_left_over() -> bool:
        return [pod["metadata"]["name"] for pod in await world.pods_of("digits")] == [
            "digits-worker-1",
            "digits-worker-2",
        ]

    await world.until_it_is(is_left_over)


async def test_v2_launcher_when_it_waits_for_workers_comes_after_the_last_is_ready(world: World) -> None:
    await world.submit(an_mpijob("digits", world.namespace, spec={"launcherCreationPolicy": "WaitForWorkersReady"}))

    async def has_workers() -> bool:
        return len(await world.pods_of("digits")) == 2

    await world.until_it_is(has_workers)
    assert await world.client.find(api.JOBS, "digits-launcher", world.namespace) is None
    await world.add_node("n1")
    await world.until_condition("digits", "Running")


async def test_v2_worker_when_the_launcher_works_too_has_an_index_one_higher(world: World) -> None:
    await a_running_job(world, workers=2, spec={"runLauncherAsWorker": True})
    worker = await world.client.get(api.PODS, "digits-worker-1", world.namespace)
    assert worker["metadata"]["labels"][REPLICA_INDEX] == "2"
    config = await world.client.get(api.CONFIG_MAPS, "digits-config", world.namespace)
    assert config["data"]["hostfile"].startswith("digits-launcher.digits.")


async def test_v2_job_when_scaled_down_where_the_launcher_works_replaces_the_last_wanted_worker(world: World) -> None:
    await a_running_job(world, workers=3, spec={"runLauncherAsWorker": True})
    old = await world.client.get(api.PODS, "digits-worker-1", world.namespace)
    await scale(world, 2)

    async def is_replaced() -> bool:
        new = await world.client.find(api.PODS, "digits-worker-1", world.namespace)
        return new is not None and new["metadata"]["uid"] != old["metadata"]["uid"]

    await world.until_it_is(is_replaced)
    await world.until_running("digits", 2)


async def test_v2_job_when_invalid_is_only_told_so(world: World) -> None:
    job = an_mpijob("digits", world.namespace)
    job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 0
    await world.submit(job)

    async def is_told() -> bool:
        return any(
            event["reason"] == "ValidationError" for event in await world.client.list(api.EVENTS, world.namespace)
        )

    await world.until_it_is(is_told)
    assert "status" not in await world.job("digits")


async def test_v2_job_when_another_manages_it_is_left_alone(world: World) -> None:
    other = {"managedBy": "kueue.x-k8s.io/multikueue"}
    await world.submit(an_mpijob("theirs", world.namespace, policy=other))
    await a_running_job(world)
    assert await world.pods_of("theirs") == []


async def test_v2_job_when_deleted_takes_everything_with_it(world: World) -> None:
    await a_running_job(world)
    await world.client.delete(api.MPIJOBS, "digits", world.namespace)
    await world.until_gone("digits")

    async def is_gone() -> bool:
        found = [
            await world.client.find(resource, name, world.namespace)
            for resource, name in ((api.JOBS, "digits-launcher"), (api.CONFIG_MAPS, "digits-config"))
        ]
        return found == [None, None]

    await world.until_it_is(is_gone)


async def test_v2_config_when_deleted_is_made_again(world: World) -> None:
    await a_running_job(world)
    await world.client.delete(api.CONFIG_MAPS, "digits-config", world.namespace)

    async def is_back() -> bool:
        return await world.client.find(api.CONFIG_MAPS, "digits-config", world.namespace) is not None

    await world.until_it_is(is_back)
