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


class ByKubelet(ReasonPart, frozen=True, kw_only=True):
    """The kubelet of the node refused a worker."""

    worker: str
    word: str
    """The kubelet's: `OutOfcpu`."""
    text: str = ""
    """In its words."""


class ByScheduler(ReasonPart, frozen=True, kw_only=True):
    """kube-scheduler does not bind a worker to the node."""

    worker: str
    text: str
    """In its words."""


class NoDevices(ReasonPart, frozen=True, kw_only=True):
    """A worker claims devices, and the node publishes none of its GPUs as such."""

    worker: str


class OwnSelector(ReasonPart, frozen=True, kw_only=True):
    """A worker selects another node by its own nodeSelector."""

    worker: str
    label: str
    value: str


class OtherLabel(ReasonPart, frozen=True, kw_only=True):
    """A label of the node, or its name, is not what the workers require (nodeSelector, required node affinity)."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] = ()
    found: str | None = None
    """None: it has no such label."""
    others: int = 0
    """More terms, of which it meets none either."""


class NotTolerated(ReasonPart, frozen=True, kw_only=True):
    """The node has a taint that the workers do not tolerate."""

    key: str
    value: str = ""
    effect: str


class LacksResource(ReasonPart, frozen=True, kw_only=True):
    """Other pods leave too little of a resource on the node; all of it in thousandths."""

    resource: str
    asked: int
    """By a worker."""
    left: int
    most: int
    """That is left on any node of the pool."""


NodeRefusal = (
    Said
    | ByKubelet
    | ByScheduler
    | NoDevices
    | OwnSelector
    | OtherLabel
    | NotTolerated
    | LacksResource
    | Cordoned
    | NotAnswering
    | FewerGpus
    | SmallGpus
)


class Refused(ReasonPart, frozen=True, kw_only=True):
    """The largest node that refuses a job."""

    node: str
    why: NodeRefusal
    fits: int = 0
    """Workers of the job that it takes all the same."""
    others: int = 0
    """More nodes that refuse it."""


class NeedsNoGpu(ReasonPart, frozen=True, kw_only=True):
    """Its workers need no GPU, so that it waits for none."""


class ForLauncher(ReasonPart, frozen=True, kw_only=True):
    """Of the workers that it lacks room for, the place of one is for its launcher."""


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


class RoomInVain(ReasonPart, frozen=True, kw_only=True):
    """Others left GPUs for it, and a node refused it all the same: until something changes, none do so again."""

    node: str
    why: NodeRefusal


class Drained(ReasonPart, frozen=True, kw_only=True):
    """Nodes that voda drains."""

    nodes: tuple[str, ...]
    more: int = 0
