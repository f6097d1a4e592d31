"""What the API asks about pods that voda does not run; None where this voda has none of it."""

from dataclasses import dataclass
from typing import Final

from voda.operator.extender import Extender
from voda.operator.hived.pod_scheduler import PodScheduler
from voda.operator.sharing.pod_explanations import PodExplanations
from voda.operator.sharing.share_extender import ShareExtender


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPorts:
    hived: Extender[PodScheduler] | None = None
    """Schedules pods with HiveD's annotations."""
    shares: Extender[ShareExtender] | None = None
    """Answers kube-scheduler for pods that ask for GPUs by resources."""
    explanations: PodExplanations | None = None
    """Explains pods that ask for GPUs."""


NO_PODS: Final = PodPorts()
