"""Why nodes take no worker of a job, as English sentences. Pure."""

from typing import Final, assert_never

from voda.domain.reasons.nodes import (
    ByKubelet,
    ByScheduler,
    Cordoned,
    Drained,
    FewerGpus,
    LacksResource,
    LacksRoom,
    NodeRefusal,
    NoDevices,
    NoneFree,
    NotAnswering,
    NotTolerated,
    OtherLabel,
    OwnSelector,
    Refused,
    RoomInVain,
    Said,
    SmallGpus,
)
from voda.domain.reasons.stalls import NoneAtWork, Stuck, StuckCause
from voda.events.text.stalls import stall_text
from voda.text import counted, memory_size, span

_IN_BYTES: Final = {"memory", "ephemeral-storage"}
_PER_UNIT: Final = 1_000
"""Quantities of a resource are thousandths."""


def nodes_text(cause: LacksRoom | NoneFree | Stuck | RoomInVain | Drained) -> str:
    """Return why the nodes give a job no more, or why others go first."""
    match cause:
        case LacksRoom(refused=None):
            return f"needs room for {_sized(cause)}, and the nodes have room for {cause.room}"
        case LacksRoom(room=0, refused=Refused() as refused):
            return f"no node can take it: {refused_text(refused)}"
        case LacksRoom(room=room, refused=Refused() as refused):
            nodes = f"the nodes that take it have room for {room} ({refused_text(refused)})"
            return f"needs room for {_sized(cause)}, and {nodes}"
        case NoneFree(refused=None):
            return f"the free GPUs are too scattered for {_sized(cause)}"
        case NoneFree(refused=Refused() as refused):
            lacking = "room" if cause.lacks_room else "GPUs free"
            return f"the nodes that take it have no {lacking} for {_sized(cause)} ({refused_text(refused)})"
        case Stuck(planned=planned, why=why, for_s=for_s):
            used = f"stuck with {cause.at_work} of {counted(planned, 'planned worker')} at work"
            return f"{used}: {stuck_text(why)}; others go first for {span(for_s)}"
        case RoomInVain(node=node, why=refusal):
            return (
                f"others made room for it in vain ({node}: {refusal_text(refusal)}), so it gets free GPUs alone until a"
                " node that refused it or what it asks for changes, or another node opens"
            )
        case Drained(nodes=nodes, more=more):
            verb = "is" if len(nodes) + more == 1 else "are"
            return f"{', '.join(nodes)}{f' and {more} more' if more else ''} {verb} drained"
        case LacksRoom() | NoneFree():
            raise AssertionError(cause)
        case _:
            assert_never(cause)


def stuck_text(why: StuckCause) -> str:
    """Return why a job's GPUs are of no use to it."""
    match why:
        case Refused():
            return refused_text(why)
        case NoneAtWork():
            return "its GPUs are free, and none of its workers holds one"
        case _:
            return stall_text(why)


def refused_text(refused: Refused) -> str:
    """Return which node refuses a job, and why: `gpu-1: 2 CPUs free, 4 needed; 3 more refuse it`."""
    others = refused.others
    more = f"; {others} more refuse{'' if others > 1 else 's'} it" if others else ""
    takes = f" takes {refused.fits} of its workers" if refused.fits else ""
    return f"{refused.node}{takes}: {refusal_text(refused.why)}{more}"


def refusal_text(why: NodeRefusal) -> str:
    """Return why a node takes no more workers."""
    match why:
        case Said(text=text):
            return text
        case ByKubelet(worker=worker, word=word, text=text):
            return f"its kubelet refused worker {worker} ({word}){f': {text}' if text else ''}"
        case ByScheduler(worker=worker, text=text):
            return f"kube-scheduler does not bind worker {worker}: {text}"
        case NoDevices(worker=worker):
            return f"worker {worker} claims devices, and the node publishes none of its GPUs as such"
        case OwnSelector(worker=worker, label=label, value=value):
            return f"worker {worker} selects {label}={value} by its own nodeSelector"
        case OtherLabel():
            return _label_text(why)
        case NotTolerated(key=key, value=value, effect=effect):
            return f"its taint {key}{f'={value}' if value else ''}:{effect} is not tolerated"
        case LacksResource(resource="pods"):
            return "it has no room for one more pod"
        case LacksResource():
            return _resource_text(why)
        case Cordoned():
            return "it is cordoned"
        case NotAnswering():
            return "it does not answer"
        case FewerGpus(gpus=gpus, held=held):
            return f"it says {counted(gpus, 'GPU')}, and its workers hold {held}"
        case SmallGpus(memory_mib=None):
            return "it has no GPUs to share"
        case SmallGpus(memory_mib=0):
            return "the memory of its GPUs is not known"
        case SmallGpus(memory_mib=memory):
            return f"its smallest GPU has {memory:,} MiB"
        case _:
            assert_never(why)


def _label_text(why: OtherLabel) -> str:
    match why.operator, why.values:
        case "Exists", _:
            wanted = f"the label {why.key}"
        case "DoesNotExist", _:
            wanted = f"no label {why.key}"
        case "In", (value,):
            wanted = f"{why.key}={value}"
        case operator, values:
            listed = f"({', '.join(values)})" if operator in {"In", "NotIn"} else ", ".join(values)
            wanted = f"{why.key} {operator} {listed}"
    has = "it has no such label" if why.found is None else f"it has {why.key}={why.found}"
    more = f", and meets none of {counted(why.others, 'other term')}" if why.others else ""
    return f"workers require {wanted}, {has}{more}"


def _resource_text(why: LacksResource) -> str:
    resource = why.resource
    unit = "CPUs" if resource == "cpu" else f"of {resource}"
    asked = f"a worker asks for {amount_text(resource, why.asked)} {unit}"
    if why.most < why.asked:
        return f"{asked}, and no node has more than {amount_text(resource, why.most)} for it"
    return f"{asked}, and others leave {amount_text(resource, why.left)}"


def amount_text(resource: str, thousandths: int) -> str:
    """Return an amount of a resource of nodes, without its name."""
    if resource in _IN_BYTES:
        return memory_size(thousandths // _PER_UNIT)
    return f"{thousandths / _PER_UNIT:,.10g}"


def _sized(cause: LacksRoom | NoneFree) -> str:
    gpus = f" of {counted(cause.gpus, 'GPU')}" if cause.gpus else ""
    return f"{counted(cause.workers, 'worker')}{gpus}"
