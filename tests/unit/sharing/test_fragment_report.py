"""What is free of cards and of no use, on pools small enough to count by hand."""

import pytest

from tests.builders import a_job, a_node, a_state
from tests.sharing import share, whole
from voda.domain.gpus import CardShare, GpuDevice, GpuRequest
from voda.domain.node import Node
from voda.domain.shares import PodShares, SharingNode
from voda.domain.state import ClusterState
from voda.sharing.fragment_report import FragmentReport, NodeFragment, fragment_report, fragments

CARD = GpuDevice(memory_mib=16_000)


def an_account(*pods: tuple[GpuRequest, int], cards: int = 2) -> SharingNode:
    """Return an account of equal cards; each pod has a request of the card of an index, and of those that follow it."""
    return SharingNode(
        devices=(CARD,) * cards,
        pods={
            f"u{number}": PodShares(
                pod=f"ml/p{number}",
                containers={"main": CardShare(cards=tuple(range(card, card + request.count)), request=request)},
                assigned_at=0.0,
            )
            for number, (request, card) in enumerate(pods)
        },
    )


def a_pool(accounts: dict[str, SharingNode], *nodes: Node, **fields: object) -> ClusterState:
    """Return a pool as the view shows it: a card that is shared is in use by others."""
    known = {node.name: node for node in nodes}
    shown = [
        known.get(name)
        or a_node(name, gpus=len(each.devices), foreign_gpus=each.used_cards(), devices=tuple(each.devices))
        for name, each in accounts.items()
    ]
    state = a_state(nodes=[*shown, *(node for node in nodes if node.name not in accounts)], **fields)  # type: ignore[arg-type]
    return ClusterState(**{name: getattr(state, name) for name in state.__struct_fields__} | {"shares": accounts})


def nodes_in(report: FragmentReport) -> list[tuple[object, ...]]:
    return [
        (each.node, each.cards, each.whole_free_cards, each.free_milli, each.fragment_milli) for each in report.nodes
    ]


def kinds_in(report: FragmentReport) -> list[tuple[GpuRequest, int, int, int, int]]:
    return [(each.request, each.pods, each.usable_milli, each.lost_milli, each.more_pods) for each in report.kinds]


def test_each_kind_loses_what_is_too_small_for_it_and_a_node_what_they_lose_on_average() -> None:
    # n1: 400 left beside a share, 1,000 whole. n2: 700 beside a share, the other card is a pod's own.
    n1 = an_account((share(600), 0))
    n2 = an_account((share(300), 0), (whole(1), 1))
    report = fragment_report(a_pool({"n2": n2, "n1": n1}))
    assert kinds_in(report) == [
        (share(300), 1, 2_100, 0, 1 + 3 + 2),
        (share(600), 1, 1_700, 400, 1 + 1),
        (whole(1), 1, 1_000, 400 + 700, 1),
    ]
    assert nodes_in(report) == [
        ("n1", 2, 1, 1_400, pytest.approx((0 + 400 + 400) / 3)),
        ("n2", 2, 0, 700, pytest.approx((0 + 0 + 700) / 3)),
    ]


def test_node_with_fewer_whole_cards_than_a_kind_needs_is_lost_to_it_as_a_whole() -> None:
    report = fragment_report(a_pool({"n1": an_account((whole(2), 0), cards=3)}))
    assert kinds_in(report) == [(whole(2), 1, 0, 1_000, 0)]
    assert nodes_in(report) == [("n1", 3, 1, 1_000, 1_000)]


def test_fragments_of_the_metric_are_those_of_the_report_and_the_mean_over_its_kinds() -> None:
    pods = ((share(600, 4_000), 0), (share(600), 1), (share(250, 2_000), 0), (share(0, 1_000), 1))
    state = a_pool({"n1": an_account(*pods), "n2": an_account((whole(2), 0), cards=4), "n3": an_account()})
    report = fragment_report(state)
    assert {each.node: each.fragment_milli for each in report.nodes} == fragments(state)
    lost = sum(each.share * each.lost_milli for each in report.kinds)
    assert sum(fragments(state).values()) == pytest.approx(lost)
    assert sum(each.share for each in report.kinds) == pytest.approx(1)


def test_more_pods_have_room_where_compute_and_memory_are_left() -> None:
    # 13,000 MiB are left of one card, 16,000 of the other.
    report = fragment_report(a_pool({"n1": an_account((share(100, 3_000), 0), (share(100, 9_000), 1))}))
    assert [(each.request.memory_mib, each.lost_milli, each.more_pods) for each in report.kinds] == [
        (3_000, 0, 4 + 2),
        (9_000, 0, 1 + 0),
    ]
    alone = fragment_report(a_pool({"n1": an_account((share(600), 0), (share(0, 7_000), 1))}))
    # Without compute it is of the kinds that can use none, as in FGD; it has room wherever some compute is left.
    assert kinds_in(alone)[0] == (share(0, 7_000), 1, 0, 1_400, 2 + 1)


def test_card_that_a_worker_or_others_have_is_not_free() -> None:
    account = an_account((share(600), 0), cards=4)
    node = a_node("n1", gpus=4, foreign_gpus=2, devices=account.devices)
    train = a_job("train", gpus_per_replica=1, workers={0: "n1"})
    report = fragment_report(a_pool({"n1": account}, node, jobs=[train]))
    assert nodes_in(report) == [("n1", 4, 1, 1_400, 400)]


def test_node_that_takes_no_pods_has_nothing_free() -> None:
    account = an_account((share(600), 0))
    closed = a_node("n1", gpus=2, foreign_gpus=1, is_schedulable=False, devices=account.devices)
    (node,) = fragment_report(a_pool({"n1": account}, closed)).nodes
    assert node == NodeFragment(node="n1", is_open=False, cards=2, whole_free_cards=0, free_milli=0, fragment_milli=0)


def test_nodes_without_cards_are_left_out_and_without_shares_nothing_is_typical() -> None:
    left_over = SharingNode(version=3)
    report = fragment_report(a_pool({"n1": an_account(), "n2": left_over}, a_node("n3")))
    assert nodes_in(report) == [("n1", 2, 2, 2_000, None)]
    assert (report.kinds, report.rare_pods) == ((), 0)
    assert fragment_report(a_state(nodes=[a_node()])) == FragmentReport(nodes=[])


def test_kinds_that_few_pods_have_are_counted_and_not_shown() -> None:
    pods = [(share(10), card) for card in range(2) for _ in range(20)]
    report = fragment_report(a_pool({"n1": an_account(*pods, (share(500), 0))}))
    assert [each.request for each in report.kinds] == [share(10)]
    assert report.rare_pods == 1
