"""What the pods of a job say of nodes that refuse one, and what of it is told to the log and when; on virtual time."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.builders import a_job
from tests.kube.memory_world import CountingClock
from tests.virtual_time import virtually
from voda.cluster.kubernetes.convergence.refusals import (
    AVOIDED_S,
    STALE_S,
    UNSETTLED_S,
    Refusal,
    RefusalReports,
    refusals_of,
)
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.job import Job
from voda.domain.reasons.nodes import ByKubelet, ByScheduler, NodeRefusal, Said
from voda.events.types import WorkerRefused
from voda.metrics import NO_TELEMETRY

FULL = Said(text="full")
NO_CPU = "0/1 nodes are available: 1 Insufficient cpu."
GANG = "minCount (8) cannot be satisfied: 6 scheduled, 1 remaining"


def a_worker(index: int, *, lifted_for: str = "n1", why: str = "", is_bound: bool = False, **status: Any) -> Pod:
    """Return a worker whose gate was lifted for a node, where it is bound, refused or not looked at yet."""
    metadata: dict[str, Any] = {"name": f"a-worker-{index}", "namespace": "ns", "uid": f"p{index}"}
    metadata["annotations"] = {"voda.dev/job-id": "a", **({"voda.dev/node": lifted_for} if lifted_for else {})}
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    spec: dict[str, Any] = {"schedulingGates": [] if lifted_for else [{"name": "voda.dev/placement"}]}
    spec |= {"nodeName": lifted_for} if is_bound else {}
    status = {"phase": "Pending", **({"conditions": [said]} if why else {}), **status}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def bound(*indices: int, node: str = "n1") -> list[Pod]:
    return [a_worker(index, lifted_for=node, is_bound=True) for index in indices]


def said(index: int, why: str = NO_CPU) -> ByScheduler:
    return ByScheduler(worker=f"a-worker-{index}", text=why)


@pytest.mark.parametrize(
    "pod",
    [
        a_worker(0, lifted_for=""),
        # kube-scheduler makes room for it by preemption.
        a_worker(0, why=NO_CPU, nominatedNodeName="n1"),
        *bound(0),
    ],
)
def test_worker_that_waits_for_its_gate_or_for_room_or_is_bound_refuses_no_node(pod: Pod) -> None:
    assert refusals_of([pod]) == {}


def test_refusal_is_the_number_that_is_bound_whatever_the_indices() -> None:
    refused = [a_worker(index, why=NO_CPU) for index in (0, 7)]
    assert refusals_of([*refused, *bound(1, 2, 3, 4, 5, 6)]) == {"n1": Refusal(said(0), 6)}


def test_refusal_while_kube_scheduler_has_not_looked_at_all_workers_is_not_settled() -> None:
    found = refusals_of([*bound(0), a_worker(1, why=NO_CPU), a_worker(2)])
    assert found == {"n1": Refusal(said(1), 1, is_settled=False)}


def test_refusal_of_one_node_counts_no_worker_of_another_one() -> None:
    found = refusals_of([*bound(0, 1, node="n2"), *bound(2), a_worker(3, why=NO_CPU)])
    assert found == {"n1": Refusal(said(3), 1)}


def test_refusal_of_a_gang_is_the_number_that_would_fit_beside_its_workers_elsewhere() -> None:
    gang = [a_worker(index, why=GANG) for index in range(8)]
    assert refusals_of(gang)["n1"].fits == 6
    spread = [*(a_worker(index, why=GANG) for index in range(5)), *(a_worker(5 + i, lifted_for="n2") for i in range(3))]
    assert refusals_of(spread)["n1"].fits == 3


def test_worker_that_its_kubelet_refuses_is_none_of_those_that_fit() -> None:
    failed = a_worker(1, is_bound=True, phase="Failed", reason="OutOfcpu", message="no CPU")
    found = refusals_of([*bound(0), failed])
    assert found == {
        "n1": Refusal(ByKubelet(worker="a-worker-1", word="OutOfcpu", text="no CPU"), 1, by_kubelet={"p1"})
    }


# ---- what is told


class Told:
    """What the log is told of job `a`, and what it knows."""

    def __init__(self) -> None:
        self.facts: list[tuple[NodeRefusal | None, int | None]] = []
        self.jobs: dict[str, Job] = {"a": a_job("a", max_replicas=8)}
        self.inventory = Inventory(PoolRule(), self.jobs.get)
        self.reports = RefusalReports(self.inventory, CountingClock("id"), self._tell, telemetry=NO_TELEMETRY)

    def _tell(self, job_id: str, fact: WorkerRefused) -> None:
        self.facts.append((fact.reason, fact.fits))

    def see(self, fits: int, *, is_settled: bool = True) -> None:
        self.reports.see("a", {"n1": Refusal(FULL, fits, is_settled)})

    def look(self, *pods: Pod) -> None:
        self.reports.look("a", pods)

    def know(self, fits: int | None, *, at_work: int = 0) -> None:
        """Let the log have a refusal, and so many workers on the node."""
        known = {} if fits is None else {"n1": fits}
        workers = dict.fromkeys(range(at_work), "n1")
        self.jobs["a"] = a_job("a", max_replicas=8, refusals={"n1": FULL}, fits=known, workers=workers)

    def retry(self) -> None:
        self.reports.retry(self.jobs.values())


def test_refusal_is_told_once_with_its_number() -> None:
    async def act() -> None:
        told = Told()
        for _ in range(3):
            told.see(6)
        assert told.facts == [(FULL, 6)]

    virtually(act())


def test_refusal_that_is_not_settled_is_told_after_a_moment() -> None:
    async def act() -> None:
        told = Told()
        told.see(2, is_settled=False)
        await asyncio.sleep(UNSETTLED_S)
        told.see(4, is_settled=False)
        assert told.facts == []
        told.see(5)
        assert told.facts == [(FULL, 5)]

    virtually(act())


def test_refusal_for_want_of_devices_that_others_have_just_left_is_told_only_once_it_lasts() -> None:
    async def act() -> None:
        told, no_devices = Told(), "0/1 nodes are available: 1 cannot allocate all claims."
        for then, expected in ((bound(0), []), ([a_worker(0, why=no_devices)], [(said(0, no_devices), 0)])):
            told.look(a_worker(0, why=no_devices))
            await asyncio.sleep(STALE_S - 1)
            told.look(a_worker(0, why=no_devices))
            assert told.facts == []
            await asyncio.sleep(1)
            told.look(*then)
            assert told.facts == expected

    virtually(act())


def test_refusal_of_fewer_than_the_log_has_is_told_once_it_lasts() -> None:
    async def act() -> None:
        told = Told()
        told.know(6)
        told.see(6)
        # One was deleted so that another index takes its place, at which kube-scheduler has not looked again.
        told.see(5)
        await asyncio.sleep(STALE_S - 1)
        told.see(5)
        told.reports.see("a", {})
        await asyncio.sleep(1)
        told.see(5)
        assert told.facts == []
        await asyncio.sleep(STALE_S)
        told.see(5)
        assert told.facts == [(FULL, 5)]

    virtually(act())


def test_refusal_of_one_node_waits_on_while_others_are_looked_at() -> None:
    async def act() -> None:
        told = Told()
        told.see(2, is_settled=False)
        await asyncio.sleep(UNSETTLED_S)
        # As gates are lifted for workers on another node.
        told.reports.see("a", {}, among={"n2"})
        told.see(2, is_settled=False)
        assert told.facts == [(FULL, 2)]

    virtually(act())


def test_one_worker_more_is_tried_after_longer_and_longer_delays_up_to_an_hour() -> None:
    async def act() -> None:
        told = Told()
        told.see(6)
        for delay_s in (AVOIDED_S, 600.0, 1_200.0, 2_400.0, 3_600.0, 3_600.0):
            told.know(6, at_work=6)
            told.facts.clear()
            await asyncio.sleep(delay_s - 1)
            told.retry()
            assert told.facts == []
            await asyncio.sleep(1)
            told.retry()
            told.know(7, at_work=6)
            told.retry()
            assert told.facts == [(None, 7)]
            told.see(6)
            assert told.facts == [(None, 7), (FULL, 6)]
        # A node that has changed is another one.
        told.jobs["a"] = a_job("a")
        told.retry()
        told.see(6)
        told.know(6, at_work=6)
        await asyncio.sleep(AVOIDED_S)
        told.retry()
        assert told.facts[-1] == (None, 7)

    virtually(act())


def test_job_whose_replicas_start_together_tries_one_more_only_at_its_next_start() -> None:
    async def act() -> None:
        told = Told()
        notes = {"voda.dev/job-id": "a", "voda.dev/starts-together": "true"}
        metadata = {"name": "a", "namespace": "default", "uid": "u1", "annotations": notes}
        told.inventory.put_object("u1", IndexedJobV1(), msgspec.convert({"metadata": metadata}, JobObject))
        told.see(6)
        told.know(6, at_work=6)
        await asyncio.sleep(2 * AVOIDED_S)
        told.retry()
        assert told.facts == [(FULL, 6)]
        told.know(6)
        told.retry()
        assert told.facts == [(FULL, 6), (None, None)]

    virtually(act())


def test_node_that_takes_one_worker_more_is_tried_as_any_other() -> None:
    async def act() -> None:
        told = Told()
        told.know(6, at_work=6)
        told.retry()
        await asyncio.sleep(AVOIDED_S)
        told.retry()
        told.know(7, at_work=7)
        told.retry()
        assert told.facts == [(None, 7), (None, None)]

    virtually(act())


@pytest.mark.parametrize("fits", [None, 0, 3])
def test_job_without_workers_tries_the_node_anew_also_where_a_former_leader_was_refused(fits: int | None) -> None:
    async def act() -> None:
        told = Told()
        told.know(fits)
        told.retry()
        await asyncio.sleep(AVOIDED_S - 1)
        told.retry()
        assert told.facts == []
        await asyncio.sleep(1)
        told.retry()
        assert told.facts == [(None, None)]

    virtually(act())


REFUSED = a_worker(1, is_bound=True, phase="Failed", reason="OutOfcpu")
WHY = ByKubelet(worker="a-worker-1", word="OutOfcpu")


def test_pod_that_a_kubelet_refused_and_that_stays_after_all_others_have_ended_is_told_once() -> None:
    async def act() -> None:
        told = Told()
        told.look(*bound(0), REFUSED)
        assert told.facts == [(WHY, 1)]
        told.know(1)
        for _ in range(2):
            told.look(REFUSED)
            await asyncio.sleep(STALE_S)
        await asyncio.sleep(AVOIDED_S)
        told.retry()
        told.jobs["a"] = a_job("a", max_replicas=8)
        told.look(REFUSED)
        assert told.facts == [(WHY, 1), (None, None)]
        # Another one is another refusal.
        told.look(*bound(0), REFUSED, a_worker(2, is_bound=True, phase="Failed", reason="OutOfcpu"))
        assert told.facts[2:] == [(ByKubelet(worker="a-worker-2", word="OutOfcpu"), 1)]

    virtually(act())


def test_pod_that_a_kubelet_refused_under_a_former_leader_is_not_told_again() -> None:
    async def act() -> None:
        told = Told()
        told.know(1)
        for _ in range(2):
            told.look(REFUSED)
            told.retry()
            await asyncio.sleep(STALE_S)
        assert told.facts == []

    virtually(act())


def test_refusal_of_a_kubelet_of_fewer_than_the_log_has_is_told_at_once_before_all_end_for_it() -> None:
    async def act() -> None:
        told = Told()
        told.see(2)
        told.know(2)
        told.look(*bound(0), REFUSED)
        told.look(REFUSED)
        await asyncio.sleep(STALE_S)
        told.look(REFUSED)
        assert told.facts == [(FULL, 2), (WHY, 1)]

    virtually(act())
