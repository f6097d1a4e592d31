"""Raters: which devices a container takes on a node, and how good the node is for the pod; one file each."""

from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeGuard

from voda.domain.gpus import GpuRequest
from voda.domain.plugins import Catalogue
from voda.sharing.rating.demand import Demand
from voda.sharing.rating.nodes import Bools, Floats, NodeArrays


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingContext:
    """What a rater may know besides the nodes."""

    demand: Demand
    load: Floats | None = None
    """(all nodes, d): measured use of each device, 0 to 1; nan where it is not measured, None = nowhere."""
    uid: str = ""
    """Of the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerChoice:
    """One container that needs devices, on n nodes."""

    container: GpuRequest
    before: NodeArrays
    """Without the pod."""
    nodes: NodeArrays
    """With the pod's CPU and memory, and with the containers that were served before this one."""
    fitting: Bools
    """(n, d): the devices that could serve it."""
    context: RatingContext


class Rater(Protocol):
    """Decides on which node and which devices a pod comes; pure."""

    name: ClassVar[str]
    """As users write it: `binpack`."""
    title: ClassVar[str]
    """One line for users."""
    heeds_uid: ClassVar[bool]
    """Whether pods that ask for the same are rated differently."""

    def pick(self, choice: ContainerChoice) -> Bools:
        """Return shape (n, d): the devices that the container would get on each node.

        Where a node has at least as many fitting devices as the container needs, exactly so many of them are picked;
        of other nodes the answer is not used.
        """

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        """Return shape (n,): the higher, the better the node; `after` is with the pod, `before` without it."""


class TieBreaking(Protocol):
    """A rater that holds nodes for equal whose scores are within a tolerance of the best."""

    tolerance: ClassVar[float]

    def tie(self, before: NodeArrays, after: NodeArrays) -> Floats:
        """Return shape (n,): of equal nodes the highest wins."""


def breaks_ties(rater: Rater) -> TypeGuard[TieBreaking]:
    """Say whether a rater breaks ties; `isinstance` would take a tenth of the time in which a node is rated."""
    return hasattr(rater, "tie")


RATERS: Final = Catalogue[Rater](__name__, method="score", noun="rater")
