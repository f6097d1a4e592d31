"""What a job waits for that no plan can give, as English sentences. Pure."""

from typing import assert_never

from voda.domain.job import CONTESTED, CONTESTED_AGAIN, GONE, Job
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.stalls import (
    Attaching,
    ContainerWaits,
    LacksClaims,
    LacksPods,
    LostNode,
    NotBound,
    NotStarted,
    OtherGates,
    PodStays,
    StallReason,
    TakenGpus,
    Unscheduled,
    WorkersStay,
)
from voda.text import counted


def stall_text(reason: StallReason | None) -> str:
    """Return what a job waits for, one sentence; empty: for nothing."""
    match reason:
        case None:
            return ""
        case OtherGates() | NotBound() | NotStarted() | ContainerWaits():
            return f"{'its launcher' if reason.worker is None else f'worker {reason.worker}'} {_of_pod(reason)}"
        case LacksPods(said=said) if said:
            return f"not all of its workers have a pod: {said}"
        case LacksPods(operator=operator, failures=failures) if failures:
            pods = "a pod of it" if failures == 1 else f"{failures} pods of it in a row"
            pause = f"{operator} makes none for a while (backoff) since {pods} failed"
            return f"not all of its workers have a pod: {pause}; with backoffLimitPerIndex only those wait that failed"
        case LacksPods(operator=operator, object=kind):
            see = f"see whether {operator} runs, and what it says of the {kind} (kubectl describe)"
            return f"not all of its workers have a pod: {see}"
        case Attaching(worker=worker, node=node, conditions=()):
            return f"devices of worker {worker} are attached to {node}, and kube-scheduler does not bind it yet"
        case Attaching(worker=worker, node=node, conditions=conditions):
            waits = f"kube-scheduler binds it once their driver says {', '.join(conditions)}"
            return f"devices of worker {worker} are being attached to {node}: {waits}"
        case PodStays(pod=pod, node=node):
            where = f"its node {node or '(none)'} has not confirmed its end, or a finalizer keeps it"
            return f"pod {pod} was deleted and does not go: {where}"
        case WorkersStay(operator=operator):
            return f"it is suspended and its workers are still there: see whether {operator} runs"
        case Unscheduled(launcher=pod):
            return f"its launcher {pod} has no node: kube-scheduler finds none (kubectl describe pod)"
        case LacksClaims(pod=pod, claims=claims):
            what = f"worker {pod} has no ResourceClaim for {', '.join(claims)} yet"
            return f"{what}: see whether kube-controller-manager runs"
        case LostNode(node=node):
            return f"node {node} is not there any more"
        case TakenGpus(node=node, free=free, needed=needed, resource=resource):
            return f"node {node} has {free:g} {resource} free, workers on it need {needed:g}"
        case Said(text=text):
            return text
        case _:
            assert_never(reason)


def _of_pod(reason: OtherGates | NotBound | NotStarted | ContainerWaits) -> str:
    match reason:
        case OtherGates(gates=gates):
            return f"is not to be placed yet: scheduling gates {', '.join(gates)} are closed"
        case NotBound(node=node, scheduler=scheduler):
            return f"may go to {node}, and {scheduler} does not bind it: see whether it runs"
        case NotStarted(node=node):
            return f"on {node} has not started yet"
        case ContainerWaits(node=node, container=container, why=why):
            what = f"does not start: {why}" if why else "cannot pull its image"
            return f"on {node}: container {container} {what}"
        case _:
            assert_never(reason)


def avoided_sizes_text(job: Job, now: float) -> str:
    """Return at which sizes a job does not run for a while as its program failed there; empty: at none."""
    left = {size: until for size, until in sorted(job.avoided_sizes.items()) if until > now}
    if not left:
        return ""
    minutes = max(1, round((max(left.values()) - now) / 60))
    return (
        f"its program failed right after a resize to {' and to '.join(map(str, left))}, and had run with"
        f" {counted(job.ran_size, 'worker')}: no plan gives it {' or '.join(map(str, left))} for another"
        f" {counted(minutes, 'minute')}, unless its request changes"
    )


def sick_gpus_text(job: Job) -> str:
    """Return which GPUs of a job's workers are sick; empty: none is."""
    sick = [(index, gpu) for index, gpu in sorted(job.sick_gpus.items()) if index in job.workers]
    return "; ".join(sick_text(index, job.workers[index], gpu.gpu, gpu.reason, gpu.other) for index, gpu in sick)


def sick_text(worker: int, node: str, gpu: str, reason: str, other: str) -> str:
    """Return what is wrong with a GPU of a worker, and what is done about it."""
    if reason in (CONTESTED, CONTESTED_AGAIN):
        has = f"GPU {gpu} of worker {worker} on {node} was given to {other} as well"
        if reason == CONTESTED:
            return f"{has} (see whether two schedulers run): the worker moves unless that is over soon"
        return f"{has}, again: kube-scheduler takes it for free, until a DeviceTaintRule closes it or it is restarted"
    what = "is gone from its slices" if reason == GONE else f"is {reason.lower()}"
    return f"GPU {gpu} of worker {worker} on {node} {what}: the worker moves unless it is well again soon"
