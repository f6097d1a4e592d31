"""The stand-in for training-operator's MPIJob v1 keeps what is known of it, on the real API server."""

from tests.kube import client as api
from tests.kube.objects import an_mpijob_v1
from tests.kube.operators.base import OPERATOR_NAME, REPLICA_INDEX, REPLICA_TYPE
from tests.kube.world import World


async def a_running_job(world: World, workers: int = 2, **changes: object) -> None:
    await world.add_node("n1")
    await world.submit(an_mpijob_v1("digits", world.namespace, workers, **changes))
    await world.until_condition("digits", "Running")
    await world.until_running("digits", workers)


async def scale(world: World, workers: int) -> None:
    spec = {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}
    await world.client.patch(api.MPIJOBS_V1, (world.namespace, "digits"), {"spec": spec})


async def suspend(world: World, is_suspended: bool = True) -> None:
    patch = {"spec": {"runPolicy": {"suspend": is_suspended}}}
    await world.client.patch(api.MPIJOBS_V1, (world.namespace, "digits"), patch)


async def conditions(world: World) -> list[tuple[str, str, str]]:
    status = (await world.job("digits"))["status"]
    return [(each["type"], each["status"], each["reason"]) for each in status["conditions"]]


async def test_v1_job_when_submitted_gets_workers_and_a_bare_launcher_pod(world_v1: World) -> None:
    await a_running_job(world_v1)
    launcher = await world_v1.client.get(api.PODS, "digits-launcher", world_v1.namespace)
    assert api.controller_of(launcher)["kind"] == "MPIJob"
    labels = (await world_v1.client.get(api.PODS, "digits-worker-1", world_v1.namespace))["metadata"]["labels"]
    assert (labels[OPERATOR_NAME], labels[REPLICA_TYPE], labels[REPLICA_INDEX]) == ("mpijob-controller", "worker", "1")


async def test_v1_hosts_when_workers_run_are_listed_with_slots(world_v1: World) -> None:
    await a_running_job(world_v1)

    async def are_listed() -> bool:
        config = await world_v1.client.get(api.CONFIG_MAPS, "digits-config", world_v1.namespace)
        return bool(config["data"]["discover_hosts.sh"] == "#!/bin/sh\necho digits-worker-0:1\necho digits-worker-1:1")

    await world_v1.until_it_is(are_listed)


async def test_v1_launcher_when_scaled_may_run_programs_in_the_workers_there_are(world_v1: World) -> None:
    await a_running_job(world_v1, workers=1)
    await scale(world_v1, 2)
    await world_v1.until_running("digits", 2)
    role = await world_v1.client.get(api.ROLES, "digits-launcher", world_v1.namespace)
    assert role["rules"][1]["resourceNames"] == ["digits-worker-0", "digits-worker-1"]


async def test_v1_job_when_launcher_ends_well_succeeds_and_keeps_its_pods(world_v1: World) -> None:
    await a_running_job(world_v1)
    await world_v1.end_launcher("digits")
    await world_v1.until_condition("digits", "Succeeded")
    assert "completionTime" in (await world_v1.job("digits"))["status"]
    assert len(await world_v1.running_workers("digits")) == 2


async def test_v1_job_when_it_cleans_up_all_loses_its_launcher_too(world_v1: World) -> None:
    await a_running_job(world_v1, policy={"cleanPodPolicy": "All"})
    await world_v1.end_launcher("digits")
    await world_v1.until_gone("digits")


async def test_v1_job_when_a_worker_fails_fails_for_good(world_v1: World) -> None:
    await a_running_job(world_v1)
    await world_v1.kubelet.exit(world_v1.namespace, "digits-worker-0", 1)
    await world_v1.until_condition("digits", "Failed")
    assert ("Failed", "True", "MPIJobMPIJobFailed") in await conditions(world_v1)
    assert "completionTime" in (await world_v1.job("digits"))["status"]


async def test_v1_job_when_a_worker_is_evicted_fails_and_stays_so(world_v1: World) -> None:
    await a_running_job(world_v1)
    await world_v1.kubelet.evict(world_v1.namespace, "digits-worker-0")
    await world_v1.until_condition("digits", "Failed")
    frozen = await conditions(world_v1)
    assert ("Failed", "True", "MPIJobEvicted") in frozen
    await world_v1.client.delete(api.PODS, "digits-worker-0", world_v1.namespace)
    await world_v1.end_launcher("digits")
    await suspend(world_v1)
    await scale(world_v1, 3)
    assert await conditions(world_v1) == frozen
    assert "digits-worker-0" not in await world_v1.running_workers("digits")


async def test_v1_job_when_a_worker_fails_under_exit_code_is_restarting_for_ever(world_v1: World) -> None:
    job = an_mpijob_v1("digits", world_v1.namespace)
    job["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"
    await world_v1.add_node("n1")
    await world_v1.submit(job)
    await world_v1.until_running("digits", 2)
    await world_v1.kubelet.exit(world_v1.namespace, "digits-worker-0", 137)
    await world_v1.until_restarting("digits")
    assert await world_v1.running_workers("digits") == ["digits-worker-1"]


async def test_v1_job_when_scaled_down_loses_its_highest_workers(world_v1: World) -> None:
    await a_running_job(world_v1, workers=4)
    await scale(world_v1, 2)
    await world_v1.until_running("digits", 2)
    assert await world_v1.running_workers("digits") == ["digits-worker-0", "digits-worker-1"]


async def test_v1_job_when_suspended_loses_all_pods_and_runs_again_when_resumed(world_v1: World) -> None:
    await a_running_job(world_v1)
    await suspend(world_v1)
    await world_v1.until_gone("digits")
    await world_v1.until_condition("digits", "Suspended")
    assert ("Running", "False", "MPIJobSuspended") in await conditions(world_v1)
    await suspend(world_v1, False)
    await world_v1.until_running("digits", 2)
    await world_v1.until_condition("digits", "Running")
    assert ("Suspended", "False", "MPIJobResumed") in await conditions(world_v1)


async def test_v1_job_when_its_time_to_live_is_over_is_deleted(world_v1: World) -> None:
    await a_running_job(world_v1, policy={"ttlSecondsAfterFinished": 0})
    await world_v1.end_launcher("digits")

    async def is_gone() -> bool:
        return await world_v1.client.find(api.MPIJOBS_V1, "digits", world_v1.namespace) is None

    await world_v1.until_it_is(is_gone)
    await world_v1.until_gone("digits")


async def test_v1_job_when_its_deadline_has_passed_fails_and_loses_its_pods(world_v1: World) -> None:
    # It may have passed before anybody sees the job run.
    await world_v1.add_node("n1")
    await world_v1.submit(an_mpijob_v1("digits", world_v1.namespace, 2, policy={"activeDeadlineSeconds": 1}))
    await world_v1.until_condition("digits", "Failed")
    await world_v1.until_gone("digits")
