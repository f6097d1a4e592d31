"""Which shares move so that whole cards become free: no card gives more than it has, no move takes a whole card."""

from collections.abc import Mapping
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_node, a_state
from tests.unit.projections.test_shares import CARD, a_share, whole
from voda.domain.gpus import CardShare, GpuDevice
from voda.domain.shares import NodeCard, PodShares, SharingNode
from voda.sharing.defragmentation import PlannedMoves, after_moves, plan_moves
from voda.sharing.fragment_report import fragments

Pods = Mapping[str, tuple[CardShare, ...]]
NODES = ("n1", "n2")


def a_pod(*shares: CardShare) -> PodShares:
    return PodShares(pod="ml/pod", containers={f"c{n}": share for n, share in enumerate(shares)}, assigned_at=0.0)


def an_account(pods: Pods, cards: int = 4, device: GpuDevice = CARD) -> SharingNode:
    return SharingNode(devices=(device,) * cards, pods={uid: a_pod(*shares) for uid, shares in pods.items()})


def planned(account: SharingNode, *, most: int = 10, fixed: str = "") -> PlannedMoves:
    movable = {uid: ("n1",) for uid in account.pods if uid not in fixed}
    return plan_moves({"n1": account}, movable, most=most)


def moves(found: PlannedMoves) -> list[tuple[str, int, int]]:
    return [(move.pod_uid, move.source.card, move.target.card) for move in found.moves]


def test_smallest_shares_move_to_the_fullest_cards_that_have_room() -> None:
    account = an_account({"a": (a_share(300),), "b": (a_share(400, card=1),), "c": (a_share(600, card=2),)})
    found = planned(account)
    assert (moves(found), found.freed) == ([("a", 0, 2)], (NodeCard("n1", 0),))
    assert (found.shared, found.fixed) == (3, 0)


def test_card_with_a_share_that_may_not_be_moved_stays_as_it_is() -> None:
    account = an_account({"a": (a_share(300),), "b": (a_share(400, card=1),)})
    assert moves(planned(account, fixed="a")) == [("b", 1, 0)]
    found = planned(account, fixed="ab")
    assert (found.moves, found.shared, found.fixed) == ((), 2, 2)


def test_whole_cards_are_neither_taken_nor_freed() -> None:
    assert planned(an_account({"a": (a_share(300),)})).moves == ()
    assert planned(an_account({"a": (whole(0),), "b": (a_share(100, card=1),)})).moves == ()


def test_memory_counts_and_cards_of_another_kind_are_no_target() -> None:
    full = {"a": (a_share(300, memory_mib=9_000),), "b": (a_share(100, memory_mib=9_000, card=1),)}
    assert planned(an_account(full)).moves == ()
    small = an_account({"a": (a_share(300),)}, cards=1)
    large = an_account({"b": (a_share(300),)}, cards=1, device=GpuDevice(memory_mib=80_000))
    assert plan_moves({"n1": small, "n2": large}, {"a": NODES, "b": NODES}, most=9).moves == ()


def test_pod_moves_to_nodes_that_it_selects_alone_and_one_with_several_cards_stays() -> None:
    nodes = {"n1": an_account({"a": (a_share(300),)}), "n2": an_account({"b": (a_share(500),)})}
    assert plan_moves(nodes, {"a": ("n1",)}, most=9).moves == ()
    assert [move.target for move in plan_moves(nodes, {"a": NODES}, most=9).moves] == [NodeCard("n2", 0)]
    wide = an_account({"a": (a_share(300), a_share(100, card=1)), "b": (a_share(100, card=2),)})
    assert moves(planned(wide)) == [("b", 2, 0)]


def test_closed_card_is_neither_freed_nor_a_target() -> None:
    account = an_account({"a": (a_share(300),), "b": (a_share(400, card=1),)})
    assert plan_moves({"n1": account}, {"a": ("n1",), "b": ("n1",)}, most=9, closed={"n1": (1,)}).moves == ()


def test_card_whose_shares_are_more_than_the_moves_left_stays() -> None:
    account = an_account({"a": (a_share(100),), "b": (a_share(100),), "c": (a_share(700, card=1),)})
    assert moves(planned(account, most=1)) == [("c", 1, 0)]
    assert planned(account, most=0).moves == ()


def test_after_all_moves_less_is_of_no_use() -> None:
    account = an_account({"a": (a_share(300),), "b": (a_share(400, card=1),), "w": (whole(2),)})
    state = replace(a_state(nodes=[a_node("n1", devices=(CARD,) * 4, foreign_gpus=3)]), shares={"n1": account})
    after = after_moves(state, planned(account))
    assert (round(fragments(state)["n1"]), round(fragments(after)["n1"])) == (433, 200)
    assert after.shares["n1"].free()[0].is_whole
    assert not state.shares["n1"].free()[0].is_whole


SIZES = st.tuples(st.integers(1, 9), st.integers(0, 8), st.integers(0, 3), st.sampled_from(NODES), st.booleans())


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, SharingNode], dict[str, tuple[str, ...]]]:
    """Two nodes of four cards with shares that fit, and those that may be moved."""
    accounts = {name: an_account({}) for name in NODES}
    movable = dict[str, tuple[str, ...]]()
    for number, (tenths, gib, card, node, is_movable) in enumerate(draw(st.lists(SIZES, max_size=20))):
        containers = {"c": a_share(100 * tenths, memory_mib=1_000 * gib, card=card)}
        if not accounts[node].refusal(containers):
            accounts[node].pods[f"u{number}"] = a_pod(*containers.values())
            if is_movable:
                movable[f"u{number}"] = NODES
    return accounts, movable


def whole_cards(accounts: Mapping[str, SharingNode]) -> set[NodeCard]:
    frees = ((name, enumerate(account.free())) for name, account in accounts.items())
    return {NodeCard(name, card) for name, cards in frees for card, left in cards if left.is_whole}


@given(cluster=clusters(), most=st.integers(0, 12))
def test_moves_fit_together_free_their_cards_and_take_no_whole_one(
    cluster: tuple[dict[str, SharingNode], dict[str, tuple[str, ...]]], most: int
) -> None:
    accounts, movable = cluster
    found = plan_moves(accounts, movable, most=most)
    assert found == plan_moves(dict(reversed(accounts.items())), movable, most=most)
    assert len(found.moves) <= most
    assert len({move.pod_uid for move in found.moves}) == len(found.moves)
    assert {move.pod_uid for move in found.moves} <= movable.keys()
    assert {move.source for move in found.moves} == set(found.freed)
    assert not {move.target for move in found.moves} & {move.source for move in found.moves}
    before = {
        NodeCard(name, card) for name in NODES for card, left in enumerate(accounts[name].free()) if left.is_whole
    }
    state = after_moves(replace(a_state(nodes=map(a_node, NODES)), shares=accounts), found)
    after = {name: state.shares[name].free() for name in NODES}
    assert before | set(found.freed) == {
        NodeCard(name, card) for name in NODES for card, left in enumerate(after[name]) if left.is_whole
    }
    assert all(left.milli >= 0 and left.memory_mib >= 0 for name in NODES for left in after[name])


@given(cluster=clusters())
def test_plan_is_empty_only_where_no_single_card_can_be_emptied(
    cluster: tuple[dict[str, SharingNode], dict[str, tuple[str, ...]]],
) -> None:
    accounts, movable = cluster
    if plan_moves(accounts, movable, most=100).moves:
        return
    for name, account in accounts.items():
        for card in range(4):
            on = {uid: pod for uid, pod in account.pods.items() if account.cards_of([uid]) == {card}}
            if len(on) == 1 and on.keys() <= movable.keys():
                [pod] = on.values()
                request = pod.containers["c0"].request
                for other, target in permutations([(n, c) for n in NODES for c in range(4)], 2):
                    left = accounts[target[0]].free()[target[1]]
                    fits = left.milli >= request.milli and left.memory_mib >= request.memory_mib
                    assert other != (name, card) or left.is_whole or not fits
