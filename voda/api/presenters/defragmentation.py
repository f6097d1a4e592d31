"""Moves of shares that free whole cards, as the API shows them."""

from voda.api.schemas.defragmentation import DefragmentationView, NodeCardView, ShareMoveView
from voda.application.defragment import DefragmentationAnswer
from voda.domain.shares import NodeCard, ShareMove
from voda.sharing.fragment_report import FragmentReport


def defragmentation_of(answer: DefragmentationAnswer, *, is_dry_run: bool) -> DefragmentationView:
    """Return what moves in a pool."""
    planned = answer.planned
    return DefragmentationView(
        pool=answer.pool,
        is_requested=bool(planned.moves) and not is_dry_run,
        moves=tuple(map(_move, planned.moves)),
        cards=tuple(map(_card, planned.freed)),
        whole_free_cards=_whole(answer.before),
        whole_free_cards_after=_whole(answer.after),
        fragment_milli=_fragment(answer.before),
        fragment_milli_after=_fragment(answer.after),
        note=answer.note,
        is_under_way=answer.is_under_way,
    )


def _move(move: ShareMove) -> ShareMoveView:
    return ShareMoveView(
        pod=move.pod,
        pod_uid=move.pod_uid,
        milli=move.milli,
        memory_mib=move.memory_mib,
        source=_card(move.source),
        target=_card(move.target),
    )


def _card(card: NodeCard) -> NodeCardView:
    return NodeCardView(node=card.node, card=card.card)


def _whole(report: FragmentReport) -> int:
    return sum(node.whole_free_cards for node in report.nodes)


def _fragment(report: FragmentReport) -> float | None:
    known = [node.fragment_milli for node in report.nodes if node.fragment_milli is not None]
    return sum(known) if known else None
