"""How far moves of shares have come: one after the other, each for a while, and never beyond the limit."""

import math

from voda.domain.gpus import CardShare, GpuDevice, GpuRequest
from voda.domain.shares import NEW_PLACE_S, Defragmentation, NodeCard, PodShares, ShareMove, SharingNode, cards_to_keep

ENDS_AT = 600.0


def share(milli: int, card: int = 0) -> dict[str, CardShare]:
    return {"c": CardShare(cards=(card,), request=GpuRequest(milli=milli))}


def a_move(uid: str, *, milli: int = 300, source: int = 0) -> ShareMove:
    source_card, target = NodeCard("n1", source), NodeCard("n2", 0)
    return ShareMove(pod_uid=uid, pod=f"ml/{uid}", milli=milli, memory_mib=0, source=source_card, target=target)


def requested(*moves: ShareMove) -> Defragmentation:
    freed = tuple(dict.fromkeys(move.source for move in moves))
    return Defragmentation(requested_by="ada", requested_at=0.0, ends_at=ENDS_AT, moves=moves, freed=freed, version=1)


ROOM = {"n2": SharingNode(devices=(GpuDevice(),))}
A, B = a_move("a"), a_move("b", milli=400, source=1)


def test_next_move_begins_once_the_share_before_has_left_and_its_successor_has_a_card() -> None:
    moves = requested(A, B)
    assert (moves.current(1, ROOM), sorted(moves.kept("n1")), sorted(moves.kept("n2"))) == (A, [0, 1], [])
    moves = moves.with_left("a", 10)
    assert moves.current(11, ROOM) == A
    moves = moves.with_share("other", "dev/other", share(300)).with_share("new", "ml/new", share(100))
    assert moves.current(12, ROOM) == A
    moves = moves.with_share("new", "ml/new", share(300))
    assert (moves.current(13, ROOM), moves.successors) == (B, {"a": "new"})
    moves = moves.with_left("b", 20).with_share("b", "ml/b", share(400))
    assert (moves.current(21, ROOM), moves.is_in_force(21), moves.changes_at(21)) == (None, False, math.inf)


def test_successor_may_have_its_card_before_the_share_has_left() -> None:
    moves = requested(A, B).with_share("new", "ml/new", share(300))
    assert moves.current(1, ROOM) == A
    assert moves.with_left("a", 2).current(2, ROOM) == B


def test_share_without_a_new_place_holds_the_next_move_up_for_a_while_only() -> None:
    moves = requested(A, B).with_left("a", 10)
    assert (moves.changes_at(11), moves.current(10 + NEW_PLACE_S, ROOM)) == (10 + NEW_PLACE_S, B)
    assert moves.changes_at(100) == ENDS_AT


def test_card_from_which_a_share_cannot_be_taken_lets_the_others_go_first() -> None:
    moves = requested(A, a_move("c"), B)
    assert moves.current(1, ROOM, stuck={A.source}) == B
    assert moves.current(1, ROOM, stuck={A.source, B.source}) is None


def test_share_whose_room_others_took_stays_and_so_do_those_beside_it() -> None:
    moves = requested(A, a_move("c", milli=100), B)
    taken = {"x": PodShares(pod="ml/x", containers=share(750), assigned_at=0.0)}
    assert moves.current(1, {"n2": SharingNode(devices=(GpuDevice(),), pods=taken)}) is None
    assert moves.current(1, {}) is None
    assert requested(a_move("c", milli=100)).current(1, {"n2": SharingNode(devices=(GpuDevice(),), pods=taken)})


def test_moves_end_after_their_time() -> None:
    moves = requested(A)
    assert (moves.is_in_force(ENDS_AT), moves.current(ENDS_AT, ROOM), moves.changes_at(ENDS_AT)) == (
        False,
        None,
        math.inf,
    )


def test_share_comes_beside_others_where_there_is_room_and_never_to_a_card_that_is_kept() -> None:
    pods = {"a": PodShares(pod="ml/a", containers=share(600), assigned_at=0.0)}
    account = SharingNode(devices=(GpuDevice(),) * 3, pods=pods)
    assert cards_to_keep(account, {1}, 300, 0) == {1, 2}
    assert cards_to_keep(account, {1}, 500, 0) == {1}
    assert cards_to_keep(account, {0}, 300, 0) == {0}
