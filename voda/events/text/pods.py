"""Why a pod that voda does not run loses what it has, as English. Pure."""

from typing import assert_never

from voda.domain.reasons import pods as reasons


def pod_text(reason: reasons.ShareLoss | reasons.Withdrawal | None) -> str:
    """Return why, one clause; empty: there is no reason."""
    match reason:
        case None:
            return ""
        case reasons.NotWaiting():
            return "the pod does not wait any more"
        case reasons.NothingToSpare():
            return "the node has no GPUs to spare for it any more"
        case reasons.NoGpuFree(within_s=within_s):
            return f"no GPU was free for it within {within_s} s"
        case _:
            return _loss(reason)


def _loss(reason: reasons.ShareLoss) -> str:
    match reason:
        case reasons.PodGone(was_to_be_bound=was_to_be_bound):
            return "it was gone when it was to be bound" if was_to_be_bound else "the pod is gone"
        case reasons.PodEnded():
            return "the pod has ended"
        case reasons.PodLeaving():
            return "the pod is being deleted"
        case reasons.WorkerGone():
            return "its worker is gone"
        case reasons.IsWorker():
            return "the pod is a job's worker"
        case reasons.GpusGone(gpus=gpus):
            return f"GPU {', '.join(map(str, gpus))} of the node is gone" if gpus else "the GPU is gone"
        case reasons.OtherGpus():
            return "its claims were given other GPUs, or another part of them"
        case reasons.GivenElsewhere():
            return "its claims were given GPUs of another node"
        case reasons.NoneGiven():
            return "its claims have no GPUs"
        case reasons.ClaimsRefused():
            return "the API server refuses claims that select the GPUs"
        case _:
            return _by_scheduler(reason)


_OfScheduler = (
    reasons.BoundElsewhere
    | reasons.NotBoundInTime
    | reasons.BoundAgain
    | reasons.ChosenElsewhere
    | reasons.GivenAway
    | reasons.NotPlaced
    | reasons.NothingNew
    | reasons.Unseen
)


def _by_scheduler(reason: _OfScheduler) -> str:
    match reason:
        case reasons.BoundElsewhere(node=node):
            return f"the pod was bound to node {node}"
        case reasons.NotBoundInTime(within_s=within_s):
            return f"the pod was not bound within {within_s:g} s"
        case reasons.BoundAgain():
            return "it is about to be bound again"
        case reasons.ChosenElsewhere(node=node):
            return f"kube-scheduler has chosen node {node} for it"
        case reasons.GivenAway(to=to):
            return f"kube-scheduler has given its GPU to {to}"
        case reasons.NotPlaced(text=text):
            return f"kube-scheduler cannot place the pod there: {text}"
        case reasons.NothingNew(for_s=for_s):
            return f"kube-scheduler has said nothing new of the pod for {for_s:g} s"
        case reasons.Unseen(scheduler=scheduler, for_s=for_s):
            return f"no scheduler has looked at the pod for {for_s:g} s: its schedulerName is {scheduler}"
        case _:
            assert_never(reason)
