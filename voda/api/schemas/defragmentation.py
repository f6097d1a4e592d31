"""Moves of shares that free whole cards, as they travel over HTTP."""

from typing import Annotated

from msgspec import Meta

from voda.api.schemas.base import View


class NodeCardView(View, frozen=True, kw_only=True):
    """A card of a node."""

    node: str
    card: Annotated[int, Meta(description="Its index on the node.")]


class ShareMoveView(View, frozen=True, kw_only=True):
    """A pod, or a job of one machine, leaves its card, and there is room for it on another one."""

    pod: Annotated[str, Meta(description="NAMESPACE/NAME.")]
    pod_uid: Annotated[str, Meta(description="Of a job its id.")]
    milli: Annotated[int, Meta(description="Thousandths of the compute of its card.")]
    memory_mib: int
    source: NodeCardView
    target: Annotated[
        NodeCardView, Meta(description="Where there is room; a pod that comes in its place may come to another one.")
    ]


class DefragmentationView(View, frozen=True, kw_only=True):
    """What moves in one pool, one after the other, and what of its cards is free before and after."""

    pool: str
    is_requested: Annotated[bool, Meta(description="Whether the log has it now; not so of a dry run.")]
    moves: tuple[ShareMoveView, ...]
    cards: Annotated[tuple[NodeCardView, ...], Meta(description="Those that become whole.")]
    whole_free_cards: int
    whole_free_cards_after: int
    fragment_milli: Annotated[
        float | None, Meta(description="As of `/api/v1/fragmentation`, of all nodes; null: it is not known.")
    ]
    fragment_milli_after: float | None
    note: Annotated[str, Meta(description="Why nothing moves, or would, one sentence; empty: something does.")]
    is_under_way: Annotated[
        bool,
        Meta(description="Of a dry run: whether an earlier request is in force, of which `note` tells."),
    ] = False


class DefragmentationList(View, frozen=True, kw_only=True):
    """The pools that were asked for."""

    items: tuple[DefragmentationView, ...]
