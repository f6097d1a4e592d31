"""Pods that ask for GPUs as the API shows them."""

from collections.abc import Iterator

from voda.api.presenters.cards import cards_of
from voda.domain.shares import SharingNode
from voda.operator.sharing.pod_explanations import PodExplanation
from voda.wire.base import instant, view_of
from voda.wire.pods import PodCardView, SharingPodView


def sharing_pod_of(explanation: PodExplanation, node: SharingNode) -> SharingPodView:
    """Return a pod with its GPUs; `node` is the account of its node."""
    return view_of(
        SharingPodView,
        explanation,
        cards=tuple(_cards(explanation, node)),
        assigned_at=instant(explanation.assigned_at),
    )


def _cards(explanation: PodExplanation, node: SharingNode) -> Iterator[PodCardView]:
    for card in cards_of(node):
        beside = tuple(share for share in card.shares if share.pod_uid != explanation.pod_uid)
        for share in card.shares:
            if share.pod_uid == explanation.pod_uid:
                yield view_of(
                    PodCardView,
                    card,
                    container=share.container,
                    milli=share.milli,
                    memory_mib=share.memory_mib,
                    beside=beside,
                )
