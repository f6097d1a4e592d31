"""How single jobs are made what is wanted of them, on a cluster in memory and on virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from tests.kube.acting import MPIJOBS_V1, Stage
from tests.kube.client import PODS, TRAINJOBS
from tests.kube.memory_api import Wire
from tests.virtual_time import now_s, virtually
from voda.cluster.kubernetes.convergence.desired import DesiredHalt, DesiredRun, DesiredStop
from voda.cluster.kubernetes.convergence.steps import KILL_S
from voda.events.types import ActionFailed, JobRegistered

OBJECT = "/apis/kubeflow.org/v2beta1/namespaces/ns/mpijobs/a"
WORKER = "/api/v1/namespaces/ns/pods/a-worker-0"


def in_no_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on virtual time."""

    @wraps(test)
    def run() -> None:
        virtually(test())

    return run


def is_suspended(stage: Stage, job_id: str = "a") -> bool:
    found = stage.job(job_id)
    assert found is not None
    return bool(found["spec"]["runPolicy"]["suspend"])


def replicas(stage: Stage) -> int:
    found = stage.job("a")
    assert found is not None
    return int(found["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"])


def with_a_failed_worker(wire: Wire | None = None) -> Stage:
    stage = Stage(wire)
    stage.add_job("a")
    stage.add_node("n1")
    stage.add_worker("a", 0, node="n1", phase="Failed")
    return stage


async def retried(stage: Stage, *, for_s: float) -> None:
    """Let the actuator try again what failed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(for_s):
            await stage.actuator.run()


def attempts(stage: Stage) -> list[int]:
    return [fact.attempt for fact in stage.told if isinstance(fact, ActionFailed)]


@in_no_time
async def test_job_when_wanted_by_several_at_once_is_converged_by_one_of_them() -> None:
    stage = Stage(Wire(longest_s=1.0))
    stage.add_job("a", suspend=True)
    stage.add_node("n1")
    async with asyncio.TaskGroup() as group:
        for size in (1, 2, 3):
            group.create_task(stage.actuator.set_desired("a", DesiredRun(("n1",) * size)))
            group.create_task(stage.actuator.converge(["a"]))
    assert stage.wire.most_at_once == 1
    assert replicas(stage) == 3


@in_no_time
async def test_wish_when_another_is_being_fulfilled_is_fulfilled_next() -> None:
    stage = Stage(Wire(longest_s=1.0))
    stage.add_job("a", suspend=True)
    async with asyncio.TaskGroup() as group:
        group.create_task(stage.actuator.set_desired("a", DesiredRun(("n1",))))
        await asyncio.sleep(0.01)
        await stage.actuator.set_desired("a", DesiredHalt())
    assert is_suspended(stage)
    assert [method for method, path in stage.wire.asked if path == OBJECT] == ["PATCH", "PATCH"]


@in_no_time
async def test_failure_when_it_repeats_is_told_once_per_attempt_after_growing_pauses() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.actuator.desired["a"] = DesiredHalt()
    stage.wire.is_down = True
    times: list[float] = []
    while len(times) < 10:
        before = len(attempts(stage))
        await stage.actuator.converge(["a"])
        times += [now_s()] * (len(attempts(stage)) - before)
        await asyncio.sleep(0.1)
    assert attempts(stage) == list(range(1, 11))
    pauses = [later - sooner for sooner, later in pairwise(times)]
    # A quarter longer at most, so that jobs that failed together are not tried together; and each takes its time.
    for pause, least in zip(pauses, [0.5, 1, 2, 4, 8, 16, 32, 60, 60], strict=True):
        assert least <= pause + 0.01 <= 1.25 * least + 0.75


@in_no_time
async def test_failure_when_it_is_over_is_forgotten() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.actuator.desired["a"] = DesiredHalt()
    stage.wire.is_down = True
    await stage.actuator.converge(["a"])
    stage.wire.is_down = False
    await retried(stage, for_s=0.6)
    assert is_suspended(stage)
    stage.wire.asked.clear()
    await retried(stage, for_s=100.0)
    assert (attempts(stage), stage.wire.asked) == ([1], [])


@in_no_time
async def test_job_when_another_fails_does_not_wait_for_it() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.add_job("b")
    stage.actuator.desired = {"a": DesiredHalt(), "b": DesiredHalt()}
    stage.remove_job("a")
    stage.wire.is_down = True
    await stage.actuator.converge(["a"])
    stage.wire.is_down = False
    await stage.actuator.converge(["a", "b"])
    assert is_suspended(stage, "b")


@in_no_time
async def test_server_when_it_asks_for_patience_is_left_alone_for_as_long() -> None:
    stage = Stage(Wire(throttles=1.0, asks_for_s=20))
    stage.add_job("a")
    stage.actuator.desired["a"] = DesiredHalt()
    await stage.actuator.converge(["a"])
    stage.wire.throttles = 0.0
    await asyncio.sleep(19.5)
    await stage.actuator.converge(["a"])
    assert not stage.wire.asked
    await asyncio.sleep(6.0)
    await stage.actuator.converge(["a"])
    assert is_suspended(stage)


@in_no_time
async def test_wish_when_the_server_is_away_is_told_kept_and_tried_again_here() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.wire.is_down = True
    await stage.actuator.set_desired("a", DesiredHalt())
    [failed] = stage.told
    assert isinstance(failed, ActionFailed)
    assert (failed.attempt, "nobody answers" in failed.error) == (1, True)
    assert failed.retry_at is not None
    assert 0.5 <= failed.retry_at - stage.clock.now() + 1.0 <= 1.7
    assert stage.actuator.underway == {"a"}
    stage.wire.is_down = False
    await retried(stage, for_s=1.0)
    assert is_suspended(stage)


@in_no_time
async def test_state_that_is_set_again_costs_no_request_once_the_first_try_has_succeeded() -> None:
    stage = Stage()
    stage.add_job("a")
    for _ in range(2):
        await stage.actuator.set_desired("a", DesiredHalt())
    assert is_suspended(stage)
    assert [method for method, path in stage.wire.asked if path == OBJECT] == ["PATCH"]


@in_no_time
async def test_wishes_when_leadership_ends_are_forgotten() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.actuator.desired["a"] = DesiredHalt()
    stage.wire.is_down = True
    await stage.actuator.converge(["a"])
    stage.actuator.stand_down()
    stage.wire.is_down = False
    await retried(stage, for_s=100.0)
    await stage.actuator.converge(["a", *stage.actuator.unsettled(["a"])])
    assert not is_suspended(stage)


@in_no_time
async def test_failed_worker_when_deleted_is_counted_on_its_object_before() -> None:
    stage = with_a_failed_worker()
    await stage.actuator.set_desired("a", DesiredRun(("n1",)))
    assert stage.wire.asked == [("PATCH", OBJECT), ("DELETE", WORKER)]
    assert _noted(stage) == "1"
    assert stage.pods() == {}


@in_no_time
async def test_failed_worker_when_its_pod_is_still_known_after_its_deletion_is_counted_once() -> None:
    stage = with_a_failed_worker()
    await stage.actuator.set_desired("a", DesiredRun(("n1",)))
    # The object's watch may be faster than that of the pods.
    await stage.actuator.converge(["a"])
    assert stage.pods() == {}
    assert _noted(stage) == "1"


@in_no_time
async def test_failed_worker_when_counted_by_a_leader_that_died_before_its_deletion_is_counted_once() -> None:
    stage = with_a_failed_worker()
    stage.wire.is_down_for = "DELETE"
    stage.actuator.desired["a"] = DesiredRun(("n1",))
    await stage.actuator.converge(["a"])
    assert (_noted(stage), stage.pods()) == ("1", {"a-worker-0": "n1"})
    stage.actuator.stand_down()
    stage.wire.is_down_for = ""
    stage.watch()
    await stage.actuator.set_desired("a", DesiredRun(("n1",)))
    assert (_noted(stage), stage.pods()) == ("1", {})


@in_no_time
async def test_failed_worker_when_its_successor_fails_too_is_counted_twice() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.add_node("n1")
    for times in (1, 2):
        stage.add_worker("a", 0, node="n1", phase="Failed")
        await stage.actuator.set_desired("a", DesiredRun(("n1",)))
        await stage.actuator.converge(["a"])
        stage.watch()
        assert _noted(stage) == str(times)
        # Its successor is for later.
        await asyncio.sleep(2 * times)


@in_no_time
async def test_worker_when_drained_is_deleted_and_not_counted() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    stage = await _after_the_end_of_its_worker(conditions=[condition])
    assert (stage.wire.asked, _noted(stage)) == ([("DELETE", WORKER)], None)


@in_no_time
async def test_failed_worker_when_its_object_changed_meanwhile_is_counted_once_nevertheless() -> None:
    stage = with_a_failed_worker()
    stage.change_job("a", {"metadata": {"labels": {"team": "vision"}}})
    await stage.actuator.set_desired("a", DesiredRun(("n1",)))
    assert stage.pods() == {"a-worker-0": "n1"}
    stage.watch()
    await stage.actuator.converge(["a"])
    assert _noted(stage) == "1"
    assert stage.pods() == {}
    assert attempts(stage) == []


@in_no_time
async def test_job_when_it_changed_during_a_step_that_met_a_conflict_is_looked_at_again() -> None:
    stage = with_a_failed_worker(Wire(longest_s=1.0))
    async with asyncio.TaskGroup() as group:
        group.create_task(stage.actuator.set_desired("a", DesiredRun(("n1",))))
        await asyncio.sleep(0)
        # The server takes this before the step that is on its way, and the watch is faster than that one's answer.
        stage.change_job("a", {"metadata": {"labels": {"team": "vision"}}})
        stage.watch()
        await stage.actuator.converge(["a"])
    assert stage.pods() == {}
    assert _noted(stage) == "1"


@in_no_time
async def test_worker_when_evicted_is_deleted_and_not_counted() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    stage = await _after_the_end_of_its_worker(reason="Evicted", conditions=[condition])
    assert (stage.wire.asked, _noted(stage)) == ([("DELETE", WORKER)], None)


async def _after_the_end_of_its_worker(**status: object) -> Stage:
    stage = Stage()
    stage.add_job("a")
    stage.add_node("n1")
    stage.add_worker("a", 0, node="n1")
    stage.set_status("a-worker-0", phase="Failed", **status)
    stage.watch()
    await stage.actuator.set_desired("a", DesiredRun(("n1",)))
    return stage


@in_no_time
async def test_worker_when_a_successor_has_its_name_already_is_not_taken_for_it() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.add_node("n1")
    stage.add_node("n2")
    stage.add_worker("a", 0, node="n1", phase="Running")
    stage.remove_pod("a-worker-0")
    news = stage._news
    stage._news = []
    stage.add_worker("a", 0)
    stage._news = [*news, *stage._news]
    # voda knows the former one only, which is on the wrong node.
    before = stage.pods()
    await stage.actuator.set_desired("a", DesiredRun(("n2",)))
    assert stage.pods().keys() == before.keys()


@in_no_time
async def test_worker_when_an_answer_says_that_it_is_gone_is_kept_until_the_watch_says_so() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.add_node("n1")
    stage.add_node("n2")
    stage.add_worker("a", 0, node="n1", phase="Running")
    stage.remove_pod("a-worker-0")
    await stage.actuator.set_desired("a", DesiredRun(("n2",)))
    assert stage.wire.asked == [("DELETE", WORKER)]
    assert stage.inventory.gpu_nodes("a") == {0: "n1"}
    stage.watch()
    assert stage.inventory.gpu_nodes("a") == {}


@in_no_time
async def test_worker_when_its_successor_is_seen_before_the_answer_that_it_is_gone_is_let_go() -> None:
    stage = Stage(Wire(longest_s=1.0))
    stage.add_job("a")
    stage.add_node("n1")
    stage.add_node("n2")
    stage.add_worker("a", 0, node="n1", phase="Running")
    stage.remove_pod("a-worker-0")
    deleting = asyncio.create_task(stage.actuator.set_desired("a", DesiredRun(("n2",))))
    while not stage.wire.asked:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.001)
    stage.add_worker("a", 0)
    assert not deleting.done()
    await deleting
    await stage.actuator.converge(["a"])
    assert stage.wire.asked == [("DELETE", WORKER), ("PATCH", WORKER)]
    stage.schedule()
    assert stage.pods() == {"a-worker-0": "n2"}


@in_no_time
async def test_object_when_it_is_to_be_made_anew_is_deleted_once_the_log_knows() -> None:
    stage = Stage(resource=MPIJOBS_V1)
    stage.add_job("a")
    failed = {"type": "Failed", "status": "True", "reason": "MPIJobEvicted"}
    stage.change_job("a", {"status": {"conditions": [failed]}}, "status")
    stage.watch()
    await stage.actuator.set_desired("a", DesiredRun(("n1",)))
    await stage.actuator.converge(["a"])
    assert stage.told == [JobRegistered(job_id="a", uid="")]
    assert stage.job("a") is not None
    stage.jobs["a"] = replace(stage.jobs["a"], uid="")
    await stage.actuator.converge(["a"])
    assert stage.job("a") is None


@in_no_time
async def test_object_when_the_job_was_canceled_is_deleted_but_none_that_took_its_name() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.remove_job("a")
    stage._news.clear()
    spec: dict[str, Any] = {"runPolicy": {}, "mpiReplicaSpecs": {}}
    stage.server.answer(
        "POST", "/apis/kubeflow.org/v2beta1/namespaces/ns/mpijobs", {}, {"metadata": {"name": "a"}, "spec": spec}
    )
    await stage.actuator.set_desired("a", DesiredStop(is_unwanted=True))
    assert stage.job("a") is not None
    stage.add_job("b")
    await stage.actuator.set_desired("b", DesiredStop(is_unwanted=True))
    assert stage.job("b") is None


@in_no_time
async def test_worker_when_its_node_is_gone_is_deleted_without_grace() -> None:
    stage = Stage()
    stage.add_job("a", suspend=False)
    stage.add_node("n1")
    stage.add_worker("a", 0, node="n1", phase="Running")
    stage.server.answer("DELETE", "/api/v1/nodes/n1", {}, {})
    stage.watch()
    await stage.actuator.set_desired("a", DesiredRun(("n2",)))
    assert stage.pods() == {}


@in_no_time
async def test_wish_for_the_end_of_a_job_when_nothing_of_it_is_left_is_dropped() -> None:
    stage = Stage()
    stage.add_job("a", suspend=True)
    await stage.actuator.set_desired("a", DesiredStop(is_unwanted=True))
    stage.watch()
    await stage.actuator.converge(["a"])
    assert stage.actuator.desired == {}


def _noted(stage: Stage) -> str | None:
    found = stage.job("a")
    assert found is not None
    notes: dict[str, str] = found["metadata"].get("annotations", {})
    return notes.get("voda.dev/worker-failures")


@in_no_time
async def test_job_whose_launcher_succeeded_is_neither_resized_nor_suspended() -> None:
    stage = Stage()
    stage.add_job("a", workers=1)
    stage.add_node("n1")
    stage.add_worker("a", 0, node="n1", phase="Running")
    stage.add_launcher("a", phase="Succeeded")
    for desired in (DesiredRun(("n1", "n1")), DesiredHalt()):
        await stage.actuator.set_desired("a", desired)
    assert not [path for method, path in stage.wire.asked if method == "PATCH"]
    assert stage.pods() == {"a-launcher-x": "n1"}


@in_no_time
async def test_worker_without_a_node_is_left_to_its_operator_until_that_has_seen_the_end_and_then_deleted() -> None:
    stage = Stage()
    stage.add_job("a", workers=1)
    stage.add_node("n1")
    stage.add_worker("a", 0)
    stage.add_launcher("a", phase="Succeeded")
    await stage.actuator.set_desired("a", DesiredStop(is_unwanted=False))
    assert stage.pods() == {"a-worker-0": "", "a-launcher-x": "n1"}
    succeeded = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    stage.change_job("a", succeeded, "status")
    stage.watch()
    await stage.actuator.converge(["a"])
    assert stage.pods() == {"a-launcher-x": "n1"}


def with_a_pod_that_others_delete() -> Stage:
    stage = Stage()
    stage.add_job("a")
    stage.add_node("n1")
    stage.add_worker("a", 0, node="n1", phase="Running", finalizers=["batch.kubernetes.io/job-tracking"])
    return stage


@in_no_time
async def test_pod_that_others_delete_is_untracked_at_once_also_while_its_job_is_delayed_after_a_failure() -> None:
    stage = with_a_pod_that_others_delete()
    stage.actuator.desired["a"] = DesiredHalt()
    stage.wire.is_down = True
    await stage.actuator.converge(["a"])
    stage.wire.is_down = False
    stage.server.answer("DELETE", WORKER, {}, {"gracePeriodSeconds": 30})
    stage.watch()
    await stage.actuator.converge(["a"])
    assert stage.wire.asked == [("PATCH", WORKER)]
    assert "finalizers" not in stage.pod("a-worker-0")["metadata"]


@in_no_time
async def test_pod_that_cannot_be_untracked_is_tried_again_and_keeps_its_job_from_nothing() -> None:
    stage = with_a_pod_that_others_delete()
    stage.add_worker("a", 1, node="n1", phase="Running")
    stage.change_job("a", {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}}})
    stage.server.answer("DELETE", WORKER, {}, {"gracePeriodSeconds": 30})
    stage.watch()
    stage.actuator.desired["a"] = DesiredRun(("n1", "n2"))
    stage.wire.is_down_for = "PATCH"
    await stage.actuator.converge(["a"])
    assert (stage.pods(), attempts(stage)) == ({}, [])
    stage.wire.is_down_for = ""
    stage.watch()
    await retried(stage, for_s=1.1)
    assert ("PATCH", WORKER) in stage.wire.asked
    stage.wire.asked.clear()
    await retried(stage, for_s=10.0)
    assert not stage.wire.asked


@in_no_time
async def test_job_is_tried_again_soon_however_long_the_server_asks_to_wait() -> None:
    stage = with_a_pod_that_others_delete()
    stage.watch()
    stage.wire.throttles, stage.wire.asks_for_s = 1.0, 3_600
    await stage.actuator.set_desired("a", DesiredHalt())
    assert attempts(stage) == [1]
    stage.wire.throttles = 0.0
    stage.wire.asked.clear()
    await retried(stage, for_s=80.0)
    assert stage.wire.asked


@in_no_time
async def test_job_that_changes_while_it_is_tried_again_is_tried_less_often_all_the_same() -> None:
    stage = with_a_pod_that_others_delete()
    stage.watch()
    stage.wire.throttles, stage.wire.slow_s = 1.0, {"a": 1.0, "a-worker-0": 1.0}
    await stage.actuator.set_desired("a", DesiredHalt())
    retrying = asyncio.create_task(retried(stage, for_s=60.0))
    while not retrying.done():
        await stage.actuator.converge(["a"])
        await asyncio.sleep(0.1)
    assert attempts(stage) == [*range(1, len(attempts(stage)) + 1)]
    assert len(attempts(stage)) > 3


def of_an_absent_trainjob() -> Stage:
    stage = Stage()
    stage.server.serve(TRAINJOBS)
    stage.add_job("a")
    owner = {"apiVersion": TRAINJOBS.api_version, "kind": "TrainJob", "name": "t", "uid": "t1", "controller": True}
    stage.change_job("a", {"metadata": {"ownerReferences": [owner]}})
    stage.watch()
    return stage


@in_no_time
async def test_object_when_the_trainjob_that_it_names_does_not_exist_is_refused_with_what_to_do() -> None:
    stage = of_an_absent_trainjob()
    await stage.actuator.set_desired("a", DesiredHalt())
    [failed] = stage.told
    assert isinstance(failed, ActionFailed)
    assert failed.error.startswith("JobSet ns/a is controlled by TrainJob t, which does not exist: delete")


@in_no_time
async def test_object_when_the_trainjob_that_it_names_does_not_exist_is_deleted_itself() -> None:
    stage = of_an_absent_trainjob()
    await stage.actuator.set_desired("a", DesiredStop(is_unwanted=True))
    assert stage.job("a") is None


@in_no_time
async def test_job_that_is_killed_loses_its_pods_whatever_their_grace_and_whatever_their_kubelet_does() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.add_node("n1")
    stage.add_worker("a", 0, node="n1", phase="Running", terminationGracePeriodSeconds=1_000_000_000)

    def grace_s() -> int:
        return int(stage.pod("a-worker-0")["metadata"]["deletionGracePeriodSeconds"])

    stage._ask("DELETE", WORKER, {})
    stage.watch()
    await stage.actuator.set_desired("a", DesiredStop(is_unwanted=True))
    assert grace_s() == 600
    for _ in range(3):
        await stage.actuator.set_desired("a", DesiredStop(is_unwanted=True, is_kill=True))
        stage.watch()
        await stage.actuator.converge(["a"])
        stage.watch()
    assert (stage.job("a"), grace_s()) == (None, 1)
    await asyncio.sleep(KILL_S + 1.0)
    await stage.actuator.converge(["a"])
    assert stage.pods() == {}
    assert ("ns", "a-worker-0") not in stage.server.objects[PODS]


@in_no_time
async def test_launcher_of_a_job_that_is_killed_is_deleted_with_the_object_and_a_second_of_grace() -> None:
    stage = Stage()
    stage.add_job("a")
    stage.add_node("n1")
    stage.add_launcher("a")
    stage.watch()
    await stage.actuator.set_desired("a", DesiredStop(is_unwanted=True, is_kill=True))
    assert stage.job("a") is None
    assert stage.pod("a-launcher-x")["metadata"]["deletionGracePeriodSeconds"] == 1
