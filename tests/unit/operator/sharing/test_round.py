"""What is to be done of pods that claim GPUs, by what is remembered of them."""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from voda.cluster.kubernetes.objects import Pod
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest
from voda.domain.shares import SharingNode
from voda.events.text.pods import pod_text
from voda.operator.sharing.claims.allotment import Allotment, ChosenGpus, Claimant, ClosedAccounts, OpenNode
from voda.operator.sharing.claims.attempt import NEW, PodAttempt
from voda.operator.sharing.claims.round import (
    Action,
    Give,
    GiveBack,
    HeldGpus,
    RoundPlan,
    Tell,
    Unname,
    UnplacedPod,
)
from voda.operator.sharing.claims.verdicts import unseen
from voda.sharing.rating.gpu_chooser import GpuChooser
from voda.sharing.rating.raters import RATERS

PART = GpuRequest(milli=600)
REFUSED = "the API server refuses claims that select the GPUs"


def a_pod(reason: str = "", message: str = "no CPU", *, room_on: str = "n1", **spec: str) -> Pod:
    """Return a pod of which kube-scheduler says so; empty: nothing."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    status = {"conditions": [condition] if reason else [], "nominatedNodeName": room_on}
    metadata = {"name": "a", "namespace": "ns", "uid": "a"}
    return msgspec.convert({"metadata": metadata, "spec": {"schedulerName": "other", **spec}, "status": status}, Pod)


def waiting(pod: Pod) -> UnplacedPod:
    """Return a pod that asks for a part of a GPU."""
    return UnplacedPod(pod=pod, claimant=Claimant(pod=pod, claims={}, requests={"gpu": PART}))


def holding(pod: Pod, *, are_named: bool = True, renewals: int = 0, are_lost: bool = False) -> UnplacedPod:
    """Return a pod that has had a part of a GPU of n1 since instant 0."""
    found = waiting(pod)
    assert found.claimant is not None
    share = {"gpu": ContainerGpus(gpus=(0,), request=PART)}
    gpus = ChosenGpus(claimant=found.claimant, node="n1", containers=share)
    held = HeldGpus(gpus=gpus, are_lost=are_lost, is_known=True, are_named=are_named, renewals=renewals)
    return replace(found, held=held)


def a_round(
    pods: Sequence[UnplacedPod], memory: Mapping[str, PodAttempt], now: float, free: Sequence[str] = ()
) -> tuple[Sequence[Action], Mapping[str, PodAttempt]]:
    """Return what is to be done, where one GPU is free on each of the nodes, and what is remembered then."""
    account = SharingNode(devices=(GpuDevice(memory_mib=80_000, name="d/n/0"),))
    nodes = {name: OpenNode(account=account, labels={}) for name in free}
    found = RoundPlan(Allotment(GpuChooser(RATERS["binpack"]), nodes, ClosedAccounts()), memory, now)
    for pod in found.in_turn(pods):
        if found.is_full:
            break
        found.look_at(pod)
    return found.actions, {**memory, **found.memory}


def answer(pod: UnplacedPod, attempt: PodAttempt, now: float, *free: str) -> tuple[Action | None, PodAttempt]:
    """Return what is to be done of one pod, and what is remembered of it then."""
    actions, memory = a_round([pod], {"a": attempt}, now, free)
    return actions[0] if actions else None, memory["a"]


def is_moved(pod: Pod, attempt: PodAttempt, now: float) -> bool:
    """Say whether a pod gets a GPU of another node."""
    found, _ = answer(holding(pod), attempt, now, "n2")
    return isinstance(found, Give) and found.instead_of == "n1"


def given_back(pod: Pod, attempt: PodAttempt, now: float) -> str:
    """Return why a pod loses its GPU; empty: it keeps it."""
    found, _ = answer(holding(pod), attempt, now)
    return pod_text(found.reason) if isinstance(found, GiveBack) else ""


def test_pod_moves_the_later_the_more_nodes_it_avoids_and_again_once_these_are_forgotten() -> None:
    pod = a_pod("Unschedulable")
    assert [is_moved(pod, NEW, now) for now in (2.9, 3.0)] == [False, True]
    _, after = answer(holding(pod), NEW, 3.0, "n2")
    assert after.avoided == {"n1": 303.0}
    assert [is_moved(pod, NEW.avoiding("m", 1.0), now) for now in (5.9, 6.0)] == [False, True]
    many = PodAttempt(avoided={f"m{number}": 1e9 for number in range(10)})
    assert [is_moved(pod, many, now) for now in (59.9, 60.0)] == [False, True]
    assert not NEW.avoiding("m", 1.0).at(301.0).avoided
    assert not is_moved(a_pod(), NEW, 200.0)


@pytest.mark.parametrize(
    ("reason", "longest_s", "told"),
    [
        ("Unschedulable", 60.0, "kube-scheduler cannot place the pod there: no CPU"),
        ("SchedulerError", 300.0, "kube-scheduler cannot place the pod there: no CPU"),
        ("", 300.0, "no scheduler has looked at the pod for 300 s: its schedulerName is other"),
        ("SchedulingGated", 300.0, "no scheduler has looked at the pod for 300 s: its schedulerName is other"),
    ],
)
def test_pod_gives_back_what_it_cannot_use_and_is_told_why(reason: str, longest_s: float, told: str) -> None:
    assert [given_back(a_pod(reason), NEW, now) for now in (longest_s - 0.1, longest_s)] == ["", told]


def test_claims_are_made_anew_the_more_seldom_the_more_often_they_were_or_could_not_be() -> None:
    def is_renewed(now: float, *, renewals: int, failed: int = 0) -> bool:
        found, _ = answer(holding(a_pod("Unschedulable"), renewals=renewals), PodAttempt(not_renewed=failed), now)
        return isinstance(found, Give) and found.gpus.renewals == renewals + 1

    for renewals, after_s in enumerate((3.0, 12.0, 48.0)):
        assert [is_renewed(now, renewals=renewals) for now in (after_s - 0.1, after_s)] == [False, True]
    assert [is_renewed(now, renewals=0, failed=1) for now in (11.9, 12.0)] == [False, True]
    assert answer(holding(a_pod()), NEW, 299.0)[0] is None


def test_pod_without_claims_is_to_name_no_gpus_every_five_seconds_until_they_are_there() -> None:
    attempt, at = NEW, list[int]()
    pod = replace(a_pod(), metadata=replace(a_pod().metadata, annotations={"voda.dev/cards": "gpus=x"}))
    for now in range(100, 112):
        found, attempt = answer(UnplacedPod(pod=pod), attempt, float(now))
        at += [now] * isinstance(found, Unname)
    assert at == [105, 110]
    _, attempt = answer(waiting(pod), attempt, 112.0)
    assert answer(UnplacedPod(pod=pod), attempt, 200.0)[0] is None
    assert answer(UnplacedPod(pod=a_pod()), PodAttempt(missing_since=0.0), 200.0)[0] is None


def test_pod_that_nobody_looked_at_is_left_alone_until_somebody_does_and_another_avoids_the_node() -> None:
    after = NEW.gave_back(a_pod(), "n1", 100.0)
    assert answer(waiting(a_pod("SchedulingGated")), after, 101.0, "n1")[0] == Tell(
        a_pod("SchedulingGated"), pod_text(unseen(a_pod()))
    )
    assert isinstance(answer(waiting(a_pod("Unschedulable")), after, 101.0, "n1")[0], Give)
    assert not after.avoided
    attempt = NEW
    for span_s in (300.0, 600.0, 1200.0, 2400.0, 3600.0, 3600.0):
        attempt = attempt.gave_back(a_pod("Unschedulable"), "n1", 500.0)
        assert attempt.avoided == {"n1": 500.0 + span_s}
        assert "n1" in attempt.in_vain


def test_pod_whose_gpu_is_gone_is_told_so_unless_it_could_not_be_placed() -> None:
    for pod, reason in (
        (a_pod(), "the GPU is gone"),
        (a_pod("Unschedulable"), "kube-scheduler cannot place the pod there: no CPU"),
    ):
        found, _ = answer(holding(pod, are_lost=True), NEW, 1.0, "n2")
        assert isinstance(found, Give)
        assert (found.gpus.node, found.instead_of, pod_text(found.reason)) == ("n2", "n1", reason)


def test_what_was_said_before_a_pod_got_its_gpus_counts_only_once_kube_scheduler_has_looked_at_it_again() -> None:
    pod = a_pod("Unschedulable")
    named = NEW.named(pod)
    assert not is_moved(pod, named, 200.0)
    said = "kube-scheduler has said nothing new of the pod for 300 s"
    assert [given_back(pod, named, now) for now in (299.9, 300.0)] == ["", said]
    assert is_moved(a_pod("Unschedulable", "no memory"), named, 3.0)
    # It may say the same, and then takes the name of the node away; it does not where a pod may not preempt.
    assert is_moved(a_pod("Unschedulable", room_on=""), named, 3.0)
    assert not is_moved(a_pod("Unschedulable", room_on="", preemptionPolicy="Never"), named, 200.0)
    assert is_moved(pod, named.named(a_pod()), 3.0)


def test_pod_that_names_no_scheduler_is_told_which_one_is_to_place_it() -> None:
    assert pod_text(unseen(a_pod(schedulerName=""))).endswith("its schedulerName is default-scheduler")


def test_pod_that_is_refused_for_a_minute_is_hopeless_and_left_out_for_as_long_again_up_to_ten_minutes() -> None:
    unnamed = holding(a_pod(), are_named=False)
    attempt = NEW.refused(100.0).failed(100.0)
    assert [answer(unnamed, attempt, now)[0] is None for now in (100.0, 100.1)] == [True, False]
    for now, expected in ((159.9, Give), (160.0, GiveBack)):
        assert isinstance(answer(unnamed, attempt, now)[0], expected)
    found, _ = answer(unnamed, attempt, 160.0)
    assert isinstance(found, GiveBack)
    assert pod_text(found.reason) == REFUSED
    left_out = attempt.left_out("n1", 170.0)
    assert [answer(waiting(a_pod()), left_out, now, "n1")[0] is None for now in (239.9, 240.0)] == [True, False]
    longest = left_out.left_out("n1", 10_000.0)
    assert [answer(waiting(a_pod()), longest, now, "n1")[0] is None for now in (10_599.9, 10_600.0)] == [True, False]


def test_pod_that_lost_its_gpus_for_refused_claims_chooses_after_the_others_until_its_claims_are_made() -> None:
    other = a_pod()
    other = replace(other, metadata=replace(other.metadata, uid="b", name="b"))
    left_out = NEW.refused(100.0).left_out("n1", 170.0)

    def first(attempt: PodAttempt) -> str:
        actions, _ = a_round([waiting(a_pod()), waiting(other)], {"a": attempt}, 1_000.0, ["n1"])
        [given] = [each for each in actions if isinstance(each, Give)]
        return given.gpus.claimant.uid

    assert first(left_out) == "b"
    assert first(left_out.bound()) == "a"


@pytest.mark.parametrize("fail", [PodAttempt.failed, lambda attempt, now: attempt.failed(now).failed(now).failed(now)])
def test_pod_that_fails_because_the_server_does_not_answer_is_tried_again_and_keeps_its_gpus(
    fail: Callable[[PodAttempt, float], PodAttempt],
) -> None:
    attempt, unnamed = fail(NEW, 100.0), holding(a_pod(), are_named=False)
    assert answer(unnamed, attempt, 100.0)[0] is None
    assert isinstance(answer(unnamed, attempt, 100.4)[0], Give)
    assert isinstance(answer(unnamed, attempt, 1e9)[0], Give)


def test_pod_whose_claims_are_under_way_is_left_alone_and_counts_among_those_that_are_bound_at_once() -> None:
    assert answer(waiting(a_pod()), PodAttempt(is_under_way=True), 1.0, "n1")[0] is None
    busy = {f"u{number}": PodAttempt(is_under_way=True) for number in range(64)}
    assert a_round([waiting(a_pod())], busy, 1.0, ["n1"])[0] == []
