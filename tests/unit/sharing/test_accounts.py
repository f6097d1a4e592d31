"""Accounts of the log as raters read them, and the card that a share gets."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.sharing import share, whole
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest
from voda.domain.shares import PodShares, SharingNode
from voda.sharing.accounts import OpenCards, fleet_of, requests_in
from voda.sharing.demand import Demand
from voda.sharing.placement import PodPlacer
from voda.sharing.pod import PodRequest
from voda.sharing.raters import RATERS, RatingContext


def an_account(*held: tuple[int, GpuRequest], cards: int = 2, memory_mib: int = 16_000) -> SharingNode:
    """Return the account of a node; `held` is the card and what is taken of it."""
    pods = {
        f"u{number}": PodShares(
            pod=f"ml/u{number}", containers={"main": ContainerGpus(cards=(card,), request=request)}, assigned_at=0.0
        )
        for number, (card, request) in enumerate(held)
    }
    return SharingNode(devices=(GpuDevice(memory_mib=memory_mib),) * cards, pods=pods)


def chosen(request: GpuRequest, closed: Mapping[str, tuple[int, ...]] | None = None, **nodes: SharingNode) -> object:
    return OpenCards(nodes, closed).choose(request)


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
        containers = {"main": ContainerGpus(cards=(card,), request=share(taken))}
        if not account.refusal(containers):
            account.pods[f"u{number}"] = PodShares(pod="", containers=containers, assigned_at=0.0)
    found = OpenCards({"n1": account}).choose(share(milli))
    has_room = any(left.milli >= milli for left in account.free())
    assert (found is not None) == has_room
    if found is not None:
        assert not account.refusal({"main": ContainerGpus(cards=(found[1],), request=share(milli))})


def test_fleet_has_what_the_accounts_leave() -> None:
    fleet = fleet_of({"n1": an_account((0, share(250, 4_000)), (1, whole(1)))})
    assert fleet.rows().milli.tolist() == [[750, 0]]
    assert fleet.rows().device_memory.tolist() == [[12_000, 0]]


def rated_anew(
    accounts: Mapping[str, SharingNode], request: GpuRequest, closed: Mapping[str, Sequence[int]]
) -> tuple[str, int] | None:
    """Return what `OpenCards` is to choose: all accounts are read, and all nodes rated."""
    fleet, pod = fleet_of(accounts, closed), PodRequest(containers=(request,))
    asked = [*requests_in(accounts.values()).elements(), pod]
    demand = Demand([*asked, *[PodRequest(containers=(whole(1),))] * len(asked)], fleet.hardware)
    chosen = PodPlacer(fleet, RATERS["fgd"], RatingContext(demand=demand)).choose(pod)
    return None if chosen is None else (chosen.node, chosen.devices[0][0])


def with_share(account: SharingNode, uid: str, card: int, request: GpuRequest) -> SharingNode:
    containers = {"main": ContainerGpus(cards=(card,), request=request)}
    return replace(account, pods=account.pods | {uid: PodShares(pod="", containers=containers, assigned_at=0.0)})


REQUESTS = st.one_of(
    st.builds(share, st.sampled_from((100, 250, 333, 500, 999)), st.sampled_from((0, 4_000))),
    st.builds(share, st.just(0), st.sampled_from((500, 9_000))),
)
HELD = st.one_of(REQUESTS, st.just(whole(1)))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), HELD), max_size=4), min_size=1, max_size=5),
    st.lists(st.tuples(REQUESTS, st.sets(st.integers(0, 4), max_size=2), st.none() | st.integers(0, 4)), max_size=12),
)
def test_cards_that_shares_get_one_after_the_other_are_those_of_accounts_read_anew(
    held: list[list[tuple[int, GpuRequest]]], asked: list[tuple[GpuRequest, set[int], int | None]]
) -> None:
    accounts = {f"n{number}": SharingNode(devices=(GpuDevice(memory_mib=16_000),) * 3) for number in range(len(held))}
    for number, taken in enumerate(held):
        for card, request in taken:
            if not accounts[f"n{number}"].refusal({"main": ContainerGpus(cards=(card,), request=request)}):
                accounts[f"n{number}"] = with_share(accounts[f"n{number}"], f"u{card}{request}", card, request)
    cards, shut = OpenCards(accounts), set[str]()
    for number, (request, refused, closing) in enumerate(asked):
        if f"n{closing}" in accounts:
            cards.close_whole(f"n{closing}")
            shut.add(f"n{closing}")
        free = {name: account.free() for name, account in accounts.items()}
        closed = {name: [card for card, left in enumerate(free[name]) if left.is_whole] for name in shut}
        open_ = {name: account for name, account in accounts.items() if int(name[1:]) not in refused}
        chosen = cards.choose(request, {f"n{each}" for each in refused})
        assert chosen == rated_anew(open_, request, closed)
        shared = [(left.milli, left.memory_mib) for each in free.values() for left in each if not left.is_whole]
        assert cards.most_left() == max(shared, default=None)
        if chosen is not None:
            name, card = chosen
            assert cards.give(name, card, request) == free[name][card].is_whole
            accounts[name] = with_share(accounts[name], f"w{number}", card, request)
