"""The checker notices GPUs that give too much and shares that are left over, and nothing else."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import Log
from tests.dst.invariants.broken import Broken
from tests.dst.invariants.shares import Shares, refuse_overfull
from tests.dst.mutations import without
from tests.dst.trial import trial_of, tried
from tests.kube.client import Object
from tests.kube.sharing import ASSUMED, GPUS_OF, a_sharing_pod
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.node import Node
from voda.events.types import AnyFact, NodeJoined, ShareAssigned, ShareReleased

GPU = GpuDevice(memory_mib=16_000)
BEGIN = NodeJoined(node=Node(name="c1", gpus=Gpus(0), devices=(GPU, GPU)))


def an_assignment(uid: str, milli: int = 500, memory_mib: int = 0, gpu: int = 0) -> ShareAssigned:
    share = ContainerGpus(gpus=(gpu,), request=GpuRequest(milli=milli, memory_mib=memory_mib))
    return ShareAssigned(node="c1", pod_uid=uid, pod=f"ns/{uid}", containers={"main": share})


def folded(*facts: AnyFact) -> Shares:
    log, shares = Log(), Shares()
    for at, fact in enumerate((BEGIN, *facts)):
        shares.see(log.add(fact, at=float(at)))
    return shares


def a_bound_pod(name: str, core: int = 50, memory: int = 0, gpus: str = "0", **status: Any) -> Object:
    pod = a_sharing_pod(name, "ns", core, memory, annotations={f"{GPUS_OF}main": gpus, ASSUMED: "true"})
    spec = {**pod["spec"], "nodeName": "c1"}
    return {"metadata": {**pod["metadata"], "uid": name}, "spec": spec, "status": status}


def pods(*them: Object) -> dict[tuple[str, str], Object]:
    return {("ns", each["metadata"]["name"]): each for each in them}


@pytest.mark.parametrize(
    "second",
    [an_assignment("b", 600), an_assignment("b", 100, 9_000), an_assignment("b", 100, gpu=2), an_assignment("a", 100)],
)
def test_assignment_of_what_is_not_there_gives_nothing(second: ShareAssigned) -> None:
    first = an_assignment("a", 500, 8_000)
    assert folded(first, second).held == {"a": ("c1", first.containers)}


def test_pod_that_is_bound_to_gpus_that_the_log_does_not_give_it_is_noticed() -> None:
    shares = folded(an_assignment("a"), an_assignment("b"), ShareReleased(node="c1", pod_uid="b"))
    shares.refuse_bound(a_bound_pod("a"))
    for pod in (a_bound_pod("a", gpus="1"), a_bound_pod("b")):
        with pytest.raises(Broken, match="the log gives it"):
            shares.refuse_bound(pod)


@pytest.mark.parametrize("second", [a_bound_pod("b", 60), a_bound_pod("b", 10, 9_000)])
def test_gpu_that_gives_more_than_it_has_is_noticed(second: Object) -> None:
    first = a_bound_pod("a", 50, 8_000)
    refuse_overfull(pods(first, a_bound_pod("b", 50, 8_000), a_bound_pod("c", 80, phase="Failed")), "c1", 16_000)
    with pytest.raises(Broken, match="GPU 0 of node c1 gives"):
        refuse_overfull(pods(first, second), "c1", 16_000)


def test_share_of_a_pod_that_is_gone_over_or_not_bound_is_a_leak_and_a_pod_without_one_is_noticed() -> None:
    shares, bound = folded(an_assignment("a")), a_bound_pod("a")
    unbound = {**bound, "spec": {**bound["spec"], "nodeName": ""}}
    assert list(shares.leaks(pods(bound))) == []
    for there in (pods(), pods(unbound), pods({**bound, "status": {"phase": "Succeeded"}})):
        assert [each.partition(":")[0] for each in shares.leaks(there)] == ["shares leak"]
    assert [each.partition(":")[0] for each in folded().leaks(pods(bound))] == ["shares"]


@pytest.mark.parametrize(
    ("guard", "rules"), [("", {""}), ("release", {"shares leak"}), ("gpu-memory", {"gpus", "shares"})]
)
def test_world_with_shared_gpus_keeps_the_rules_but_for_those_of_a_guard_that_is_off(
    guard: str, rules: set[str]
) -> None:
    trial = trial_of(0, hours=1.25, quiet_s=900.0)
    trial = replace(trial, setup=replace(trial.setup, gpus={"c1": 2, "c2": 1}), acts=())
    with without(guard):
        verdict = tried(trial)
    assert verdict.rule in rules, verdict.breach
    assert any(isinstance(event.data, ShareReleased) for event in verdict.log) or guard
