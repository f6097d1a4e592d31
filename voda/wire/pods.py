"""Pods that ask for GPUs, as they travel over HTTP."""

from typing import Annotated, Literal

from msgspec import Meta

from voda.wire.base import Instant, View
from voda.wire.pools import ShareView


class PodGpuView(View, frozen=True, kw_only=True):
    """What a pod has of one GPU."""

    container: Annotated[str, Meta(description="Or the claim; CLAIM/REQUEST of a claim with several requests.")]
    index: Annotated[int, Meta(description="Of the GPU on the node.")]
    name: Annotated[str, Meta(description="As of the GPU: DRIVER/POOL/DEVICE of a claimed device, else empty.")]
    is_present: Annotated[bool, Meta(description="False: the node has the GPU no more.")]
    milli: Annotated[int, Meta(description="Thousandths of the GPU's compute.")]
    memory_mib: int
    beside: Annotated[tuple[ShareView, ...], Meta(description="What other pods have of the GPU.")]


class SharingPodView(View, frozen=True, kw_only=True):
    """A pod that asks for GPUs: what it has, or why it waits."""

    pod: Annotated[str, Meta(description="`namespace/name`.")]
    pod_uid: str
    asks_by: Annotated[
        Literal["claims", "resources"],
        Meta(description="Claims (dynamic resource allocation), or resources with kube-scheduler's extender."),
    ]
    asks_for: Annotated[str, Meta(description="In words; empty: `reason` says why it cannot be known.")]
    state: Annotated[
        Literal["Waiting", "Reserved", "Scheduled", "Ended"],
        Meta(description="Without GPUs; with GPUs that are kept for it; on its node; over."),
    ]
    node: Annotated[str, Meta(description="Where it is, or its GPUs are; empty: nowhere yet.")]
    gpus: tuple[PodGpuView, ...]
    assigned_at: Annotated[Instant | None, Meta(description="When it got its GPUs.")]
    reason: Annotated[str, Meta(description="Why it waits, one sentence; empty: it has what it asked for.")]
