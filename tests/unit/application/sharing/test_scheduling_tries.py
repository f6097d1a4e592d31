"""Where pods could not be placed, and how long they hold cards that they cannot use."""

import msgspec
import pytest

from voda.application.sharing.scheduling_tries import SchedulingTries, is_to_yield, move_reason, yield_reason
from voda.cluster.kubernetes.objects import Pod


def a_pod(reason: str = "") -> Pod:
    """Return a pod of which kube-scheduler says so; empty: nothing."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "no CPU"}
    status = {"conditions": [condition] if reason else []}
    metadata = {"name": "a", "namespace": "ns", "uid": "a"}
    return msgspec.convert({"metadata": metadata, "spec": {"schedulerName": "other"}, "status": status}, Pod)


def test_pod_moves_the_later_the_more_nodes_it_avoids_and_again_once_these_are_forgotten() -> None:
    tries, pod = SchedulingTries(), a_pod("Unschedulable")
    assert [tries.is_to_move(pod, held_s) for held_s in (2.9, 3.0)] == [False, True]
    tries.avoid("a", "n1", 100.0)
    assert [tries.is_to_move(pod, held_s) for held_s in (5.9, 6.0)] == [False, True]
    for node in range(10):
        tries.avoid("a", f"m{node}", 100.0)
    assert [tries.is_to_move(pod, held_s) for held_s in (59.9, 60.0)] == [False, True]
    tries.forget({"a"}, 400.0)
    assert not tries.avoided("a")
    assert not tries.is_to_move(a_pod(), 1e9)


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
    pod = a_pod(reason)
    assert [is_to_yield(pod, held_s) for held_s in (longest_s - 0.1, longest_s)] == [False, True]
    assert yield_reason(pod) == told


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
    assert move_reason(a_pod()) == "the card is gone"
    assert move_reason(a_pod("Unschedulable")) == "kube-scheduler cannot place the pod there: no CPU"
