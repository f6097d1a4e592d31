"""Placement decides on which node each worker sits; `steady` and `packed` are placers, the other modules their tools.

The tools: `order` (which job is served first), `free_gpus`, `carry_over` (what can stay), `partial_placement`,
`rendezvous_anchor` (the worker that stays where it is), `refusals`.

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

        A job that cannot be placed whole gets fewer replicas, but never less than its minimum: then it gets
        none, and is absent from the answer. The placement in force is `view.plan.placement`.

        Args:
            view: nodes with usable GPUs, jobs, the plan in force, estimates.
            replicas: job id -> replicas from the policy; 0 = none.
            now: seconds since the epoch.
        """
        ...


PLACERS: Final = Catalogue[Placer](__name__, method="place", noun="placer")
