"""What is free of shared cards and of no use, as it travels over HTTP."""

from typing import Annotated

from msgspec import Meta

from voda.api.schemas.base import View


class NodeFragmentView(View, frozen=True, kw_only=True):
    """What is free of the cards of one node."""

    node: str
    is_open: Annotated[bool, Meta(description="Whether pods and workers may come to it; if not, nothing is free.")]
    cards: int
    whole_free_cards: Annotated[int, Meta(description="Of which neither pods nor workers nor others have any.")]
    free_milli: Annotated[int, Meta(description="Of 1,000 for each card; what workers and others have is not free.")]
    fragment_milli: Annotated[
        float | None,
        Meta(
            description="Of what is free, what the next pod cannot use, on average over the typical kinds (FGD); null:"
            " no pod of the pool has compute of a card, so none is typical."
        ),
    ]


class KindFragmentView(View, frozen=True, kw_only=True):
    """What pods that ask for the same can use of what is free in the pool."""

    devices: Annotated[int, Meta(description="Whole cards that its largest container asks for; 0 = a part of one.")]
    milli: Annotated[int, Meta(description="Of a part: thousandths of a card's compute.")]
    memory_mib: Annotated[int, Meta(description="Of a part; 0 = none is accounted for.")]
    pods: Annotated[int, Meta(description="Pods, and jobs of one machine, that have it now.")]
    share: Annotated[float, Meta(description="Of the pods of all typical kinds; they add up to 1.")]
    usable_milli: Annotated[int, Meta(description="Of what is free in the pool; memory is ignored, as in FGD.")]
    lost_milli: Annotated[int, Meta(description="The rest of what is free.")]
    more_pods: Annotated[int, Meta(description="How many more of them have room, in compute and in memory.")]


class FragmentationView(View, frozen=True, kw_only=True):
    """What is free of the cards of one pool, and of use to whom."""

    pool: str
    nodes: Annotated[tuple[NodeFragmentView, ...], Meta(description="Those with cards that pods may share, by name.")]
    kinds: Annotated[
        tuple[KindFragmentView, ...],
        Meta(description="What the pods that have shares ask for, the most frequent first: 95 % of these pods."),
    ]
    rare_pods: Annotated[int, Meta(description="Pods that ask for what is too rare to be typical.")]
    not_shared: Annotated[
        str, Meta(description="Why jobs of one machine get no parts of GPUs; empty: they do, or it is Kubernetes.")
    ] = ""


class FragmentationList(View, frozen=True, kw_only=True):
    """The pools that were asked for."""

    items: tuple[FragmentationView, ...]
