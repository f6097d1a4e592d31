"""Pods that ask for GPUs as the API shows them."""

from collections.abc import Iterator

from voda.api.presenters.gpus import gpus_of
from voda.domain.shares import SharingNode
from voda.operator.sharing.pod_explanations import PodExplanation
from voda.wire.base import view_of
from voda.wire.pods import PodGpuView, SharingPodView


def sharing_pod_of(explanation: PodExplanation, node: SharingNode) -> SharingPodView:
    """Return a pod with its GPUs; `node` is the account of its node."""
    return view_of(SharingPodView, explanation, gpus=tuple(_gpus(explanation, node)))


def _gpus(explanation: PodExplanation, node: SharingNode) -> Iterator[PodGpuView]:
    for gpu in gpus_of(node):
        beside = tuple(share for share in gpu.shares if share.pod_uid != explanation.pod_uid)
        for share in gpu.shares:
            if share.pod_uid == explanation.pod_uid:
                yield view_of(PodGpuView, share, gpu, beside=beside)
