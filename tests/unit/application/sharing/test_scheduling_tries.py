"""Where pods could not be placed, and how long they hold cards that they cannot use."""

import msgspec
import pytest

from voda.application.sharing.claims.scheduling_tries import SchedulingTries, unseen_reason
from voda.cluster.kubernetes.objects import Pod


def a_pod(reason: str = "", message: str = "no CPU", *, room_on: str = "n1", **spec: str) -> Pod:
    """Return a pod of which kube-scheduler says so; empty: nothing."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    status = {"conditions": [condition] if reason else [], "nominatedNodeName": room_on}
    metadata = {"name": "a", "namespace": "ns", "uid": "a"}
    return msgspec.convert({"metadata": metadata, "spec": {"schedulerName": "other", **spec}, "status": status}, Pod)


def test_pod_moves_the_later_the_more_nodes_it_avoids_and_again_once_these_are_forgotten() -> None:
    tries, pod = SchedulingTries(), a_pod("Unschedulable")
    assert [tries.is_to_move(pod, "n1", held_s) for held_s in (2.9, 3.0)] == [False, True]
    tries.avoid("a", "n1", 100.0)
    assert [tries.is_to_move(pod, "n1", held_s) for held_s in (5.9, 6.0)] == [False, True]
    for node in range(10):
        tries.avoid("a", f"m{node}", 100.0)
    assert [tries.is_to_move(pod, "n1", held_s) for held_s in (59.9, 60.0)] == [False, True]
    tries.forget({"a"}, 400.0)
    assert not tries.avoided("a")
    assert not tries.is_to_move(a_pod(), "n1", 1e9)


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
    tries, pod = SchedulingTries(), a_pod(reason)
    assert [tries.is_to_yield(pod, "n1", held_s) for held_s in (longest_s - 0.1, longest_s)] == [False, True]
    assert tries.yield_reason(pod, "n1") == told


def test_claims_are_made_anew_the_more_seldom_the_more_often_they_were() -> None:
    tries, pod = SchedulingTries(), a_pod("Unschedulable")
    for renewals, held_s in enumerate((3.0, 12.0, 48.0)):
        assert [tries.is_to_renew(pod, "n1", at, renewals) for at in (held_s - 0.1, held_s)] == [False, True]
    assert not tries.is_to_renew(a_pod(), "n1", 1e9, 0)


def test_pod_without_claims_is_bereft_every_five_seconds_until_they_are_there() -> None:
    tries = SchedulingTries()
    assert [at for at in range(100, 112) if tries.is_bereft("a", float(at))] == [105, 110]
    tries.has_claims("a")
    assert not tries.is_bereft("a", 200.0)


def test_pod_that_nobody_looked_at_is_left_alone_until_somebody_does_and_another_avoids_the_node() -> None:
    tries = SchedulingTries()
    tries.yielded(a_pod(), "n1", 100.0)
    assert tries.is_unseen(a_pod("SchedulingGated"))
    assert not tries.is_unseen(a_pod("Unschedulable"))
    assert not tries.avoided("a")
    tries.yielded(a_pod("Unschedulable"), "n1", 100.0)
    assert tries.avoided("a") == {"n1": 400.0}
    for span_s in (600.0, 1200.0, 2400.0, 3600.0, 3600.0):
        tries.yielded(a_pod("Unschedulable"), "n1", 500.0)
        assert tries.avoided("a") == {"n1": 500.0 + span_s}
    tries.forget((), 100.0)
    assert not tries.is_unseen(a_pod())


def test_pod_whose_card_is_gone_is_told_so_unless_it_could_not_be_placed() -> None:
    assert SchedulingTries().move_reason(a_pod(), "n1") == "the card is gone"
    assert (
        SchedulingTries().move_reason(a_pod("Unschedulable"), "n1")
        == "kube-scheduler cannot place the pod there: no CPU"
    )


def test_what_was_said_before_a_pod_got_its_cards_counts_only_once_kube_scheduler_has_looked_at_it_again() -> None:
    tries, pod = SchedulingTries(), a_pod("Unschedulable")
    tries.named(pod)
    assert not tries.is_to_move(pod, "n1", 1e9)
    assert [tries.is_to_yield(pod, "n1", held_s) for held_s in (299.9, 300.0)] == [False, True]
    assert tries.yield_reason(pod, "n1") == "kube-scheduler has said nothing new of the pod for 300 s"
    assert tries.move_reason(pod, "n1") == "the card is gone"
    assert tries.is_to_move(a_pod("Unschedulable", "no memory"), "n1", 3.0)
    # It may say the same, and then takes the name of the node away; it does not where a pod may not preempt.
    assert tries.is_to_move(a_pod("Unschedulable", room_on=""), "n1", 3.0)
    assert not tries.is_to_move(a_pod("Unschedulable", room_on="", preemptionPolicy="Never"), "n1", 1e9)
    tries.named(a_pod())
    assert tries.is_to_move(pod, "n1", 3.0)


def test_pod_that_names_no_scheduler_is_told_which_one_is_to_place_it() -> None:
    assert unseen_reason(a_pod(schedulerName="")).endswith("its schedulerName is default-scheduler")
