"""Accounts of the log as raters read them, and the card that a share gets."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tests.sharing import share, whole
from voda.domain.gpus import CardShare, GpuDevice, GpuRequest
from voda.domain.shares import PodShares, SharingNode
from voda.sharing.accounts import choose_card, fleet_of


def an_account(*held: tuple[int, GpuRequest], cards: int = 2, memory_mib: int = 16_000) -> SharingNode:
    """Return the account of a node; `held` is the card and what is taken of it."""
    pods = {
        f"u{number}": PodShares(
            pod=f"ml/u{number}", containers={"main": CardShare(cards=(card,), request=request)}, assigned_at=0.0
        )
        for number, (card, request) in enumerate(held)
    }
    return SharingNode(devices=(GpuDevice(memory_mib=memory_mib),) * cards, pods=pods)


def chosen(request: GpuRequest, closed: Mapping[str, tuple[int, ...]] | None = None, **nodes: SharingNode) -> object:
    return choose_card(nodes, request, closed=closed or {})


def test_share_comes_beside_others_as_long_as_they_leave_enough() -> None:
    account = an_account((1, share(250, 4_000)))
    assert chosen(share(500), n1=account) == ("n1", 1)
    assert chosen(share(800), n1=account) == ("n1", 0)
    assert chosen(share(500, 13_000), n1=account) == ("n1", 0)


def test_share_comes_to_no_card_that_is_closed_or_whole_to_another() -> None:
    assert chosen(share(500), {"n1": (0,)}, n1=an_account()) == ("n1", 1)
    assert chosen(share(500), {"n1": (0,)}, n1=an_account((1, whole(1)))) is None
    assert chosen(share(0, 100), {"n1": (0, 1)}, n1=an_account()) is None


def test_share_on_nodes_without_cards_or_none_at_all_fits_nowhere() -> None:
    assert chosen(share(10), n1=an_account(cards=0)) is None
    assert chosen(share(10), n1=an_account(cards=0), n2=an_account(cards=1)) == ("n2", 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 999)), max_size=12), st.integers(1, 999))
def test_chosen_card_always_has_so_much_left(held: list[tuple[int, int]], milli: int) -> None:
    account = an_account(cards=4)
    for number, (card, taken) in enumerate(held):
        containers = {"main": CardShare(cards=(card,), request=share(taken))}
        if not account.refusal(containers):
            account.pods[f"u{number}"] = PodShares(pod="", containers=containers, assigned_at=0.0)
    found = choose_card({"n1": account}, share(milli), closed={})
    has_room = any(left.milli >= milli for left in account.free())
    assert (found is not None) == has_room
    if found is not None:
        assert not account.refusal({"main": CardShare(cards=(found[1],), request=share(milli))})


def test_fleet_has_what_the_accounts_leave() -> None:
    fleet = fleet_of({"n1": an_account((0, share(250, 4_000)), (1, whole(1)))})
    assert fleet.rows().milli.tolist() == [[750, 0]]
    assert fleet.rows().device_memory.tolist() == [[12_000, 0]]
