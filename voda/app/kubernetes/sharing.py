"""The parts of shared GPUs: what every replica answers kube-scheduler, and what the leader alone does.

Rule: where sharing is off, there are none.
"""

from voda.app.kubernetes.options import SharingSettings
from voda.application.backend import Backend
from voda.application.sharing.share_extender import ShareExtender
from voda.application.sharing.share_reconciler import ShareReconciler
from voda.cluster.kubernetes.mirror import ClusterMirror
from voda.cluster.kubernetes.pod_binding import PodBinding
from voda.cluster.kubernetes.state.sharing_pods import SharingPods
from voda.sharing.card_chooser import CardChooser
from voda.sharing.raters import RATERS


class Sharing:
    """Extender and reconciler, as the settings ask for them."""

    def __init__(self, backend: Backend, mirror: ClusterMirror, pods: SharingPods, settings: SharingSettings) -> None:
        self.extender: ShareExtender | None = None
        self._reconciler: ShareReconciler | None = None
        if not settings.enabled:
            return
        rater, binding = RATERS[settings.rater], PodBinding(mirror.api)
        self.extender = ShareExtender(
            backend=backend,
            binding=binding,
            pods=pods,
            chooser=CardChooser(rater),
            is_synced=lambda: mirror.is_synced,
        )
        self._reconciler = ShareReconciler(backend=backend, binding=binding, pods=pods, rater=rater)

    async def lead(self) -> None:
        """Put shares right until cancelled."""
        if self._reconciler is not None:
            await self._reconciler.run()
