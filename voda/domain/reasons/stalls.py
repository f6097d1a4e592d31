"""What a job waits for that no plan can give (its pods, its operator, its nodes), and why others go first then.

Rule: a record holds nothing that changes by itself (counts of tries, times, messages of retries): the same wait is the
same record.
"""

from voda.domain.reasons.base import ReasonPart
from voda.domain.reasons.nodes import Refused, Said


class LacksPods(ReasonPart, frozen=True, kw_only=True):
    """Its controller has not made the pods of all its workers."""

    operator: str
    object: str
    """Kind of the object that the operator serves."""
    said: str = ""
    """What the controller says about it in Events; empty: nothing."""
    failures: int = 0
    """Pods that have failed in a row, for which a Job's controller makes all others after a pause; 0: it does not."""


class PodStays(ReasonPart, frozen=True, kw_only=True):
    """A pod was deleted, and its grace is over."""

    pod: str
    node: str = ""


class WorkersStay(ReasonPart, frozen=True, kw_only=True):
    """It is suspended, and its operator leaves its pods."""

    operator: str


class Unscheduled(ReasonPart, frozen=True, kw_only=True):
    """kube-scheduler finds no node for its launcher."""

    launcher: str


class OtherGates(ReasonPart, frozen=True, kw_only=True):
    """Others keep a pod from being placed."""

    worker: int | None = None
    """None: it is the launcher."""
    gates: tuple[str, ...]


class NotBound(ReasonPart, frozen=True, kw_only=True):
    """A pod may go to a node, and its scheduler does nothing."""

    worker: int | None = None
    """None: it is the launcher."""
    node: str
    scheduler: str


class Attaching(ReasonPart, frozen=True, kw_only=True):
    """A pod may go to a node, and its devices are being attached there."""

    worker: int
    node: str
    conditions: tuple[str, ...]
    """What their driver has not said yet; empty: they are attached."""


class NotStarted(ReasonPart, frozen=True, kw_only=True):
    """A pod has its node, and its kubelet is at it."""

    worker: int | None = None
    """None: it is the launcher."""
    node: str


class ContainerWaits(ReasonPart, frozen=True, kw_only=True):
    """A container cannot be started."""

    worker: int | None = None
    """None: it is the launcher."""
    node: str
    container: str
    why: str = ""
    """The kubelet's word; empty: its image cannot be pulled."""


class LacksClaims(ReasonPart, frozen=True, kw_only=True):
    """A worker has no ResourceClaim yet for claims of its pod."""

    pod: str
    claims: tuple[str, ...]


class LostNode(ReasonPart, frozen=True, kw_only=True):
    """A planned node is not there any more."""

    node: str


class TakenGpus(ReasonPart, frozen=True, kw_only=True):
    """Others have the GPUs that workers need on a node."""

    node: str
    free: float
    needed: float
    resource: str


StallReason = (
    LacksPods
    | PodStays
    | WorkersStay
    | Unscheduled
    | OtherGates
    | NotBound
    | Attaching
    | NotStarted
    | ContainerWaits
    | LacksClaims
    | LostNode
    | TakenGpus
    | Said
)


class NoneAtWork(ReasonPart, frozen=True, kw_only=True):
    """A job's GPUs are free, and none of its workers holds one."""


StuckCause = StallReason | Refused | NoneAtWork


class Stuck(ReasonPart, frozen=True, kw_only=True):
    """It made no use of its GPUs, so that others go first for a while."""

    at_work: int = 0
    planned: int
    why: StuckCause
    for_s: float
