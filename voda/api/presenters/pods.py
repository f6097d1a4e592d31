"""Pods that ask for GPUs as the API shows them."""

from collections.abc import Iterator

from voda.api.presenters.cards import cards_of
from voda.domain.shares import SharingNode
from voda.operator.sharing.pod_explanations import PodExplanation
from voda.wire.base import view_of
from voda.wire.pods import PodCardView, SharingPodView


def sharing_pod_of(explanation: PodExplanation, node: SharingNode) -> SharingPodView:
    """Return a pod with its GPUs; `node` is the account of its node."""
    return view_of(SharingPodView, explanation, cards=tuple(_cards(explanation, node)))


def _cards(explanation: PodExplanation, node: SharingNode) -> Iterator[PodCardView]:
    for card in cards_of(node):
        beside = tuple(share for share in card.shares if share.pod_uid != explanation.pod_uid)
        for share in card.shares:
            if share.pod_uid == explanation.pod_uid:
                yield view_of(PodCardView, share, card, beside=beside)
