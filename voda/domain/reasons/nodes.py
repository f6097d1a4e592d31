"""Why nodes take no worker of a job, and why its GPUs are of no use to it."""

from voda.domain.gpus import Gpus
from voda.domain.reasons.base import ReasonPart


class Said(ReasonPart, frozen=True, kw_only=True):
    """In the words of a peer (a kubelet, kube-scheduler, an operator), or of an error."""

    text: str


class Cordoned(ReasonPart, frozen=True, kw_only=True):
    """The node is cordoned."""


class NotAnswering(ReasonPart, frozen=True, kw_only=True):
    """The node is silent."""


class FewerGpus(ReasonPart, frozen=True, kw_only=True):
    """The node says fewer GPUs than its workers hold."""

    gpus: int
    held: int


class SmallGpus(ReasonPart, frozen=True, kw_only=True):
    """A GPU of the node is smaller than a share needs; None: it has none to share at all."""

    memory_mib: int | None = None


NodeRefusal = Said | Cordoned | NotAnswering | FewerGpus | SmallGpus


class Refused(ReasonPart, frozen=True, kw_only=True):
    """The largest node that refuses a job."""

    node: str
    why: NodeRefusal
    fits: int = 0
    """Workers of the job that it takes all the same."""
    others: int = 0
    """More nodes that refuse it."""


class LacksRoom(ReasonPart, frozen=True, kw_only=True):
    """The nodes could not hold its minimum, were they empty."""

    workers: int
    gpus: Gpus
    """Of each."""
    room: int = 0
    """Workers that they could hold."""
    refused: Refused | None = None


class NoneFree(ReasonPart, frozen=True, kw_only=True):
    """What is free is too scattered for so many workers, or on nodes that refuse them."""

    workers: int
    gpus: Gpus
    """Of each."""
    refused: Refused | None = None
    lacks_room: bool = False
    """Whether the nodes that take it lack room, not GPUs: they take a number of its workers."""


class Drained(ReasonPart, frozen=True, kw_only=True):
    """Nodes that voda drains."""

    nodes: tuple[str, ...]
    more: int = 0
