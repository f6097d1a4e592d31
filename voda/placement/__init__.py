"""Placement decides on which node each worker sits; placers are `steady`, `packed` and `frugal`, others their tools.

The tools: `order` (which job is served first, which worker stays where it is), `free_gpus` and, where
nodes bound jobs by more than GPUs, `free_room`, `partial_placement`, and `costs` of moves and spans.

Rules of every placer: never more on a node than it has; no worker comes to a node that refuses its job
(`Job.refusals`), but one that is at work there may stay; then few nodes per job; then few workers moved; then whole
nodes kept free. To add one, write one file in this folder with one class that has `name`, `title` and `place`.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, Protocol

from voda.domain.plan import Placement
from voda.domain.plugins import Catalogue
from voda.domain.state import ClusterState


class Placer(Protocol):
    """Decides where the workers of an allocation sit."""

    name: ClassVar[str]
    title: ClassVar[str]

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        """Return the nodes of each job's workers, by worker index.

        `replicas` is job id -> replicas from the policy; 0 = none. A job that cannot be placed whole gets fewer, but
        always one of its sizes, and never less than its minimum: then it gets none, and is absent from the answer. The
        placement in force is `view.plan.placement`.
        """


def weighs_moves(placer: Placer) -> bool:
    """Return whether a placer moves workers by seconds lost and saved (`PlacementCosts`); it has this attribute."""
    return bool(getattr(placer, "weighs_moves", False))


PLACERS: Final = Catalogue[Placer](__name__, method="place", noun="placer")
