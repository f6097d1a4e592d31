"""What is free of shared cards and of no use, as the API shows it."""

from voda.api.schemas.base import view_of
from voda.api.schemas.fragmentation import FragmentationView, KindFragmentView, NodeFragmentView
from voda.domain.state import ClusterState
from voda.sharing.fragment_report import KindFragment, fragment_report


def fragmentation_of(state: ClusterState, not_shared: str) -> FragmentationView:
    """Return the fragmentation of a pool; on many nodes this takes a while, so it is for a thread."""
    report = fragment_report(state)
    return FragmentationView(
        pool=state.pool,
        nodes=tuple(view_of(NodeFragmentView, node) for node in report.nodes),
        kinds=tuple(map(_kind, report.kinds)),
        rare_pods=report.rare_pods,
        not_shared=not_shared,
    )


def _kind(kind: KindFragment) -> KindFragmentView:
    asked = kind.request
    return view_of(KindFragmentView, kind, devices=asked.devices, milli=asked.milli, memory_mib=asked.memory_mib)
