"""Why a pod that voda does not run loses what it has: GPUs, cells, or its place among those that wait for GPUs."""

from voda.domain.reasons.base import ReasonPart


class PodGone(ReasonPart, frozen=True, kw_only=True):
    """The pod is not there any more."""

    was_to_be_bound: bool = False
    """Whether that was found when it was to be bound."""


class NotWaiting(ReasonPart, frozen=True, kw_only=True):
    """The pod waits no more."""


class NothingToSpare(ReasonPart, frozen=True, kw_only=True):
    """The node has no GPUs to spare for the pod any more."""


class NoGpuFree(ReasonPart, frozen=True, kw_only=True):
    """No GPU of the node was free for the pod in time."""

    within_s: int


Withdrawal = NotWaiting | NothingToSpare | NoGpuFree


class PodEnded(ReasonPart, frozen=True, kw_only=True):
    """The pod has ended."""


class PodLeaving(ReasonPart, frozen=True, kw_only=True):
    """The pod is being deleted, and has no node."""


class WorkerGone(ReasonPart, frozen=True, kw_only=True):
    """The job's worker is there no more."""


class IsWorker(ReasonPart, frozen=True, kw_only=True):
    """The pod is a job's worker: plans count what it has."""


class BoundElsewhere(ReasonPart, frozen=True, kw_only=True):
    """The pod was bound to another node."""

    node: str


class NotBoundInTime(ReasonPart, frozen=True, kw_only=True):
    """Nobody bound the pod."""

    within_s: float


class BoundAgain(ReasonPart, frozen=True, kw_only=True):
    """The pod is about to be bound again, to the same node."""


class ChosenElsewhere(ReasonPart, frozen=True, kw_only=True):
    """kube-scheduler has chosen another node for the pod."""

    node: str


class GpusGone(ReasonPart, frozen=True, kw_only=True):
    """The node has some of the pod's GPUs no more."""

    gpus: tuple[int, ...] = ()
    """By index; empty: not known."""


class OtherGpus(ReasonPart, frozen=True, kw_only=True):
    """The pod's claims were given other GPUs of the node, or another part of them."""


class GivenElsewhere(ReasonPart, frozen=True, kw_only=True):
    """The pod's claims were given GPUs of another node."""


class NoneGiven(ReasonPart, frozen=True, kw_only=True):
    """The pod is on the node, and its claims have no GPUs."""


class GivenAway(ReasonPart, frozen=True, kw_only=True):
    """kube-scheduler has given the GPU to another one."""

    to: str
    """`namespace/name` of the pod, or of the claim."""


class ClaimsRefused(ReasonPart, frozen=True, kw_only=True):
    """The API server refuses claims that select the GPUs."""


class NotPlaced(ReasonPart, frozen=True, kw_only=True):
    """kube-scheduler cannot place the pod on the node."""

    text: str
    """In its words."""


class NothingNew(ReasonPart, frozen=True, kw_only=True):
    """kube-scheduler has not looked at the pod again."""

    for_s: float


class Unseen(ReasonPart, frozen=True, kw_only=True):
    """No scheduler has looked at the pod."""

    scheduler: str
    """Whose it is."""
    for_s: float


ShareLoss = (
    PodGone
    | PodEnded
    | PodLeaving
    | WorkerGone
    | IsWorker
    | BoundElsewhere
    | NotBoundInTime
    | BoundAgain
    | ChosenElsewhere
    | GpusGone
    | OtherGpus
    | GivenElsewhere
    | NoneGiven
    | GivenAway
    | ClaimsRefused
    | NotPlaced
    | NothingNew
    | Unseen
)
"""Why a pod has none of a node's GPUs any more."""
