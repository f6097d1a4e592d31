"""Pods that ask for cards, as they travel over HTTP."""

from typing import Annotated, Literal

from msgspec import Meta

from voda.wire.base import Instant, View
from voda.wire.pools import ShareView


class PodCardView(View, frozen=True, kw_only=True):
    """What a pod has of one card."""

    container: Annotated[str, Meta(description="Or the claim; CLAIM/REQUEST of a claim with several requests.")]
    index: Annotated[int, Meta(description="Of the card on the node.")]
    name: Annotated[str, Meta(description="As of the card: DRIVER/POOL/DEVICE of a claimed device, else empty.")]
    is_present: Annotated[bool, Meta(description="False: the node has the card no more.")]
    milli: Annotated[int, Meta(description="Thousandths of the card's compute.")]
    memory_mib: int
    beside: Annotated[tuple[ShareView, ...], Meta(description="What other pods have of the card.")]


class SharingPodView(View, frozen=True, kw_only=True):
    """A pod that asks for cards: what it has, or why it waits."""

    pod: Annotated[str, Meta(description="`namespace/name`.")]
    pod_uid: str
    asks_by: Annotated[
        Literal["claims", "resources"],
        Meta(description="Claims (dynamic resource allocation), or resources with kube-scheduler's extender."),
    ]
    asks_for: Annotated[str, Meta(description="In words; empty: `reason` says why it cannot be known.")]
    state: Annotated[
        Literal["Waiting", "Reserved", "Scheduled", "Ended"],
        Meta(description="Without cards; with cards that are kept for it; on its node; over."),
    ]
    node: Annotated[str, Meta(description="Where it is, or its cards are; empty: nowhere yet.")]
    cards: tuple[PodCardView, ...]
    assigned_at: Annotated[Instant | None, Meta(description="When it got its cards.")]
    reason: Annotated[str, Meta(description="Why it waits, one sentence; empty: it has what it asked for.")]
