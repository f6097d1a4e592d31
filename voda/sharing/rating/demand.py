"""What is expected of the next pods: they ask for what pods have asked for lately, each as often as it came."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

from voda.sharing.rating.fragmentation import Fragmentation
from voda.sharing.rating.kinds import typical_kinds
from voda.sharing.rating.nodes import Hardware
from voda.sharing.rating.pod import PodRequest
from voda.sharing.rating.stranding import Stranding

COVERAGE: Final = 0.95
"""Of the pods, by the kinds that FGD calls typical."""


class Demand:
    """The pods of a span of time, as seen from the nodes they may come to; measures are made when they are needed.

    Args:
        pods: what they ask for, or that -> how many do.
        hardware: of the nodes.
    """

    def __init__(self, pods: Iterable[PodRequest] | Mapping[PodRequest, int], hardware: Hardware) -> None:
        self.counts = Counter(pods)
        self._hardware = hardware

    @property
    def is_measured(self) -> bool:
        """Whether a rater has asked for any of the measures."""
        return not {"fragmentation", "stranding"}.isdisjoint(vars(self))

    @cached_property
    def fragmentation(self) -> Fragmentation:
        """Return FGD's measure for the typical kinds."""
        return Fragmentation(typical_kinds(self.counts, COVERAGE), self._hardware)

    @cached_property
    def stranding(self) -> Stranding:
        """Return the loss by all pods."""
        return Stranding(self.counts, self._hardware)
