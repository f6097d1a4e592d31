"""Why nodes take no worker of a job, as English sentences. Pure."""

from typing import assert_never

from voda.domain.reasons.nodes import (
    Cordoned,
    Drained,
    FewerGpus,
    LacksRoom,
    NodeRefusal,
    NoneFree,
    NotAnswering,
    Refused,
    Said,
    SmallGpus,
)
from voda.domain.reasons.stalls import NoneAtWork, Stuck, StuckCause
from voda.events.stall_text import stall_text
from voda.text import counted, span


def nodes_text(cause: LacksRoom | NoneFree | Stuck | Drained) -> str:
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


def _sized(cause: LacksRoom | NoneFree) -> str:
    return f"{counted(cause.workers, 'worker')} of {counted(cause.gpus, 'GPU')}"
