"""The parts of shared GPUs: what every replica answers kube-scheduler, and what the leader alone does.

Rule: where sharing is off, there are none; each of its two ways, extended resources and claims, can be on alone.
"""

import asyncio
from collections.abc import Callable

from voda.app.kubernetes.options import SharingSettings
from voda.application.journal import Journal
from voda.cluster.kubernetes.claim_binding import ClaimBinding
from voda.cluster.kubernetes.mirror import ClusterMirror
from voda.cluster.kubernetes.pod_binding import PodBinding
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.operator.extender import Extender
from voda.operator.sharing.claims.claim_placer import ClaimPlacer
from voda.operator.sharing.claims.claimants import Claimants
from voda.operator.sharing.claims.claimed_shares import ClaimedShares
from voda.operator.sharing.extender_loop import ExtenderLoop
from voda.operator.sharing.pod_explanations import PodExplanations
from voda.operator.sharing.share_extender import ShareExtender
from voda.operator.status.kube_events import Announcement
from voda.sharing.rating import RATERS, GpuChooser


class Sharing:
    """Extender, its loop and placer of claims, as the settings ask for them; and what each pod is told."""

    def __init__(
        self,
        journal: Journal,
        mirror: ClusterMirror,
        inventory: Inventory,
        settings: SharingSettings,
        announce: Callable[[Announcement], None],
    ) -> None:
        self.extender: Extender[ShareExtender] | None = None
        self._extender_loop: ExtenderLoop | None = None
        self._placer: ClaimPlacer | None = None
        rater, pods = RATERS[settings.rater], inventory.sharing
        claimants: Claimants | None = None
        if settings.enabled:
            binding = PodBinding(mirror.api)
            decider = ShareExtender(
                journal=journal,
                binding=binding,
                pods=pods,
                chooser=GpuChooser(rater),
                is_synced=lambda: mirror.is_synced,
                most_nodes=settings.nodes_to_score,
            )
            self.extender = Extender(decider)
            self._extender_loop = ExtenderLoop(journal=journal, binding=binding, pods=pods, rater=rater)
        if settings.claims:
            accounts = ClaimedShares(journal=journal, binding=ClaimBinding(mirror.api), inventory=inventory)
            claimants = Claimants(accounts=accounts)
            self._placer = ClaimPlacer(claimants=claimants, rater=rater, announce=announce)
        self.explanations = PodExplanations(
            inventory=inventory,
            shares=lambda: journal.view.cluster.shares,
            rater=rater,
            claimants=claimants,
            is_extender=settings.enabled,
            is_synced=lambda: mirror.is_synced,
        )

    async def lead(self) -> None:
        """Put shares right and place pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part in (self._extender_loop, self._placer):
                if part is not None:
                    group.create_task(part.run())
