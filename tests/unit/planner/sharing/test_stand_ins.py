"""Jobs that ask for a part of a GPU in a pool without virtual clusters: a job of one GPU stands in for them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import said
from voda.domain.gpus import MILLI_PER_DEVICE, ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.job import Job
from voda.domain.plan import Plan
from voda.domain.reasons.outcomes import GetsPart, HasPart, Waits
from voda.domain.reasons.requests import Requested
from voda.domain.shares import PodShares, SharingNode
from voda.domain.state import ClusterState
from voda.events.text.cells import part_text
from voda.placement import PLACERS
from voda.planner.sharing import part_of, parts
from voda.policies import POLICIES

GPU = GpuDevice(memory_mib=16_000)


def a_share_job(job_id: str, milli: int, memory_mib: int = 0, **fields: Any) -> Job:
    request = GpuRequest(milli=milli, memory_mib=memory_mib)
    return a_job(job_id, share=request, gpus_per_replica=Gpus(0), **fields)


def running(job_id: str, *, workers: int, least: int = 1, most: int = 4) -> Job:
    nodes = dict.fromkeys(range(workers), "n1")
    return a_job(job_id, workers=nodes, min_replicas=least, max_replicas=most)


def a_machine(*jobs: Job, gpus: int = 2, held: Mapping[str, tuple[int, int]] | None = None) -> ClusterState:
    """Return a machine; `held` is job -> the GPU of which it has how many milli; jobs that are not given run there."""
    pods = {
        uid: PodShares(
            pod=f"default/{uid}",
            containers={"share": ContainerGpus(gpus=(gpu,), request=GpuRequest(milli=milli))},
            assigned_at=0.0,
        )
        for uid, (gpu, milli) in (held or {}).items()
    }
    given = {job.spec.job_id for job in jobs}
    holders = {uid: milli for uid, (_, milli) in (held or {}).items() if uid not in given}
    jobs = (*jobs, *(a_share_job(uid, milli, workers={0: "n1"}) for uid, milli in holders.items()))
    account = SharingNode(devices=(GPU,) * gpus, pods=pods)
    node = a_node("n1", gpus=gpus, devices=account.devices, foreign_gpus=account.used_gpus())
    placement = {job.spec.job_id: tuple(job.workers.values()) for job in jobs if job.workers}
    return replace(a_state(jobs=jobs, nodes=[node], placement=placement), shares={"n1": account})


def planned(state: ClusterState) -> Plan:
    return decide(state, POLICIES["elastic-fifo"], PLACERS["steady"], 100.0, cause="test")


def test_share_when_a_gpu_is_free_gets_a_part_of_it_and_others_the_rest() -> None:
    plan = planned(a_machine(a_share_job("nb", 250), a_job("train", max_replicas=4)))
    assert plan.placement == {"nb": ("n1",), "train": ("n1",)}
    assert said(plan.reasons["nb"]) == (
        "gets 250 milli of a GPU that was whole, on n1; both jobs share 2 GPUs, first submitted first"
    )


def test_share_when_elastic_jobs_have_all_gpus_makes_them_shrink_to_no_less_than_their_minimum() -> None:
    plan = planned(a_machine(running("train", workers=2), a_share_job("nb", 250, submitted_at=1.0)))
    assert {job: len(nodes) for job, nodes in plan.placement.items()} == {"train": 1, "nb": 1}
    plan = planned(a_machine(running("train", workers=2, least=2), a_share_job("nb", 250, submitted_at=1.0)))
    assert {job: len(nodes) for job, nodes in plan.placement.items()} == {"train": 2}
    assert said(plan.reasons["nb"]) == "waits: needs 250 milli of one GPU, and none is whole"


def test_shares_when_they_fit_on_one_gpu_take_one_gpu_alone() -> None:
    jobs = [a_share_job(f"nb{number}", 250) for number in range(4)]
    plan = planned(a_machine(running("train", workers=2), *jobs))
    assert len(plan.placement["train"]) == 1
    assert plan.placement.keys() == {"train", "nb0", "nb1", "nb2", "nb3"}
    assert said(plan.reasons["nb3"]) == (
        "gets 250 milli of a GPU that others share, on n1; both jobs share 2 GPUs, first submitted first"
    )


def test_share_when_a_shared_gpu_has_room_needs_no_other() -> None:
    plan = planned(a_machine(running("train", workers=1, least=1), a_share_job("nb", 400), held={"runs": (1, 600)}))
    assert plan.placement == {"train": ("n1",), "nb": ("n1",), "runs": ("n1",)}
    assert plan.devices["nb"] == plan.devices["runs"]
    assert said(plan.reasons["nb"]) == "gets 400 milli of a GPU that others share, on n1"
    late = a_share_job("nb", 500, submitted_at=1.0)
    state = a_machine(running("train", workers=1, least=1), late, held={"runs": (1, 600)})
    assert said(planned(state).reasons["nb"]) == (
        "waits: needs 500 milli of one GPU, and none is whole; a shared one has at most 400 milli and 16,000 MiB left"
    )


def test_share_that_runs_stays_and_says_which_part_of_which_gpu_it_has() -> None:
    runs = a_share_job("nb", 250, workers={0: "n1"})
    held = {"nb": (1, 250), "other": (1, 100)}
    plan = planned(a_machine(runs, a_job("big", priority=9, max_replicas=2), held=held))
    assert plan.placement == {"nb": ("n1",), "other": ("n1",), "big": ("n1",)}
    assert said(plan.reasons["nb"]) == "has 250 milli of GPU 1 of n1, beside default/other (100 milli of GPU 1)"


def test_share_comes_after_waiting_jobs_of_higher_priority_or_that_came_before_it() -> None:
    for fields in ({"priority": 1, "submitted_at": 5.0}, {"submitted_at": 1.0}):
        share = a_share_job("nb", 250, submitted_at=2.0)
        plan = planned(a_machine(share, a_job("big", min_replicas=2, max_replicas=2, **fields)))
        assert plan.placement == {"big": ("n1", "n1")}
    later = a_job("big", min_replicas=2, max_replicas=2, submitted_at=3.0)
    assert planned(a_machine(a_share_job("nb", 250, submitted_at=2.0), later)).placement == {"nb": ("n1",)}


def test_share_when_it_is_halted_canceled_or_its_node_drained_gets_nothing() -> None:
    halted = a_share_job("nb", 250, workers={0: "n1"}, halt=Requested(by="ada"))
    canceled = a_share_job("nb", 250, workers={0: "n1"}, is_canceling=True)
    for job in (halted, canceled):
        assert planned(a_machine(job, held={"nb": (0, 250)})).placement == {}
    state = a_machine(a_share_job("nb", 250, workers={0: "n1"}), held={"nb": (0, 250)})
    drained = replace(state, nodes={"n1": replace(state.nodes["n1"], is_draining=True)}, drains={"n1": "new fan"})
    plan = planned(drained)
    assert plan.placement == {}
    assert said(plan.reasons["nb"]) == "preempted: needs 250 milli of one GPU, and none is whole; n1 is drained"


@pytest.mark.parametrize("held", [{}, {"a": (0, 600)}, {"a": (0, 600), "b": (1, 100)}])
def test_share_when_it_asks_for_more_memory_than_any_gpu_has_waits_and_says_so(
    held: Mapping[str, tuple[int, int]],
) -> None:
    plan = planned(a_machine(a_share_job("nb", 250, memory_mib=20_000), held=held))
    reason = said(plan.reasons["nb"])
    assert reason.startswith("waits: needs 250 milli and 20,000 MiB of one GPU")
    assert reason.endswith("; no node can take it: n1: its smallest GPU has 16,000 MiB")


def test_share_when_the_memory_of_no_gpu_is_known_waits_and_says_so() -> None:
    state = a_machine(a_share_job("nb", 250, memory_mib=1))
    devices = (GpuDevice(),) * 2
    state = replace(state, nodes={"n1": replace(state.nodes["n1"], devices=devices)})
    state.shares["n1"].devices = devices
    assert said(planned(state).reasons["nb"]) == (
        "waits: needs 250 milli and 1 MiB of one GPU; no node can take it: n1: the memory of its GPUs is not known"
    )


def test_share_when_no_gpu_is_free_is_told_so_and_what_is_left_of_shared_ones() -> None:
    nobody = a_machine(a_share_job("nb", 500), held={"a": (0, 600), "b": (1, 700)})
    assert said(planned(nobody).reasons["nb"]) == (
        "waits: needs 500 milli of one GPU, and none is whole; a shared one has at most 400 milli and 16,000 MiB left"
    )
    # The first share takes the last whole GPU in this very plan.
    jobs = [a_share_job("a", 600, submitted_at=1.0), a_share_job("b", 600, submitted_at=2.0)]
    plan = planned(a_machine(*jobs, gpus=1))
    assert plan.placement.keys() == {"a"}
    assert said(plan.reasons["b"]).startswith("waits: needs 600 milli of one GPU, and none is whole")


def test_share_when_nodes_refuse_it_says_why() -> None:
    refused = a_machine(a_share_job("nb", 100, refusals={"n1": "2 CPUs free, 4 needed"}))
    assert said(planned(refused).reasons["nb"]) == (
        "waits: needs 100 milli of one GPU; no node can take it: n1: 2 CPUs free, 4 needed"
    )


def test_share_that_waits_ranks_as_a_job_of_one_gpu_whatever_the_policy() -> None:
    """A policy that lets a new job go before one that has had much serves the share first, with and without cells."""
    served = a_job("old", workers={0: "n1", 1: "n1"}, min_replicas=2, max_replicas=2, queue_level=1)
    for new in (a_share_job("new", 250, submitted_at=1.0), a_job("new", submitted_at=1.0)):
        state = a_machine(served, new)
        plan = decide(state, POLICIES["tiresias"], PLACERS["steady"], 100.0, cause="test")
        assert plan.placement == {"new": ("n1",)}


def test_shares_that_have_not_started_stay_together_from_plan_to_plan() -> None:
    state = a_machine(*[a_share_job(f"nb{number}", 400, submitted_at=number) for number in range(4)])
    plan = planned(state)
    assert plan.devices["nb0"] == plan.devices["nb1"] != plan.devices["nb2"] == plan.devices["nb3"]
    assert plan.beside(["nb0"]) == {"nb0": ("nb1",)}
    jobs = {**state.jobs, "late": a_share_job("late", 400, submitted_at=9.0)}
    again = planned(replace(state, jobs=jobs, plan=plan))
    assert again.devices == plan.devices
    assert again.placement.keys() == plan.placement.keys()


def test_gpu_whose_jobs_are_all_being_canceled_is_free_for_a_plan_at_once() -> None:
    leaving = a_share_job("nb", 250, workers={0: "n1"}, is_canceling=True)
    plan = planned(a_machine(leaving, a_job("big", min_replicas=2, max_replicas=2), held={"nb": (0, 250)}))
    assert plan.placement == {"big": ("n1", "n1")}


def test_share_comes_to_no_gpu_of_which_pods_have_too_much() -> None:
    state = a_machine(a_share_job("nb", 500), held={"runs": (0, 300)})
    others = PodShares(
        pod="ml/pod",
        containers={"main": ContainerGpus(gpus=(0,), request=GpuRequest(milli=400))},
        assigned_at=0.0,
    )
    state.shares["n1"].pods["a-pod"] = others
    plan = planned(state)
    assert plan.devices["nb"] != plan.devices["runs"]


def test_plans_without_shares_do_not_depend_on_accounts() -> None:
    state = a_machine(running("train", workers=2), a_job("other"))
    assert planned(state) == planned(replace(state, shares={}))


def test_share_that_runs_without_an_account_as_in_a_simulation_comes_first() -> None:
    runs = a_share_job("nb", 250, workers={0: "n1"}, submitted_at=9.0)
    plan = planned(a_machine(runs, a_job("big", min_replicas=2, max_replicas=2, priority=5)))
    assert plan.placement == {"nb": ("n1",)}


def test_many_shares_read_each_account_twice_and_each_pod_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {f"r{number:03}": (number // 10, 100) for number in range(100)}
    jobs = [a_share_job(job_id, 100, workers={0: "n1"}) for job_id in runs]
    jobs += [a_share_job(f"w{number:03}", 100 + number) for number in range(200)]
    state = a_machine(*jobs, gpus=20, held=runs)
    calls = Counter[str]()
    counted(monkeypatch, calls, SharingNode, "free")
    counted(monkeypatch, calls, parts, "GpuMate")
    plan = planned(state)
    assert calls == {"GpuMate": 100}
    assert Counter(map(type, plan.reasons.values())) == {HasPart: 100, GetsPart: 70, Waits: 130}


def counted(monkeypatch: pytest.MonkeyPatch, calls: Counter[str], owner: Any, name: str) -> None:
    """Let a function count its calls."""
    function = getattr(owner, name)

    def counting(*arguments: Any, **named: Any) -> Any:
        calls[name] += 1
        return function(*arguments, **named)

    monkeypatch.setattr(owner, name, counting)


def test_shares_on_several_gpus_are_beside_those_of_all_of_them_in_the_order_in_which_these_came() -> None:
    state = a_machine(held={"b": (1, 100), "a": (0, 100), "nb": (0, 250)})
    nb = PodShares(
        pod="default/nb",
        containers={str(gpu): ContainerGpus(gpus=(gpu,), request=GpuRequest(milli=250)) for gpu in range(2)},
        assigned_at=0.0,
    )
    state.shares["n1"].pods["nb"] = nb
    part = part_of(state.shares, "nb")
    assert part is not None
    assert part_text(part) == (
        "for 0 250 milli of GPU 0; for 1 250 milli of GPU 1 of n1,"
        " beside default/b (100 milli of GPU 1), default/a (100 milli of GPU 0)"
    )
    assert part_of(state.shares, "other") is None


def with_pod(state: ClusterState, milli: int, *, gpu: int = 0) -> ClusterState:
    """Return the state with a pod that has so much of a GPU; 1,000 = all of it."""
    account = state.shares["n1"].copy()
    request = GpuRequest(devices=Gpus(1)) if milli == MILLI_PER_DEVICE else GpuRequest(milli=milli)
    containers = {"main": ContainerGpus(gpus=(gpu,), request=request)}
    account.pods["pod"] = PodShares(pod="ml/pod", containers=containers, assigned_at=0.0)
    node = replace(state.nodes["n1"], foreign_gpus=Gpus(account.used_gpus()))
    return replace(state, nodes={**state.nodes, "n1": node}, shares={"n1": account})


def test_gpu_beside_a_pod_when_the_job_there_has_not_started_is_nobodys_whole_gpu() -> None:
    starting, whole = a_share_job("nb", 250), a_job("train", priority=5)
    state = with_pod(a_machine(starting, whole, gpus=1, held={"nb": (0, 250)}), 700)
    state = replace(state, plan=replace(state.plan, placement={"nb": ("n1",)}, devices={"nb": ((0,),)}))
    assert planned(state).placement == {"nb": ("n1",)}


def test_share_that_moves_when_others_took_the_gpu_that_it_was_to_have_is_not_planned_there() -> None:
    moving = a_share_job("nb", 250, workers={0: "n2"})
    state = with_pod(a_machine(moving, gpus=1), MILLI_PER_DEVICE)
    nodes = {**state.nodes, "n2": a_node("n2", gpus=1, devices=(GPU,), is_draining=True)}
    plan = replace(state.plan, placement={"nb": ("n1",)}, devices={"nb": ((0,),)})
    assert planned(replace(state, nodes=nodes, plan=plan)).placement == {}
