"""Reasons as English sentences; nothing else in voda makes them, and nothing reads them.

Rule: pure; the type checker refuses a kind of reason without its words.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, assert_never

from voda.domain.reasons.cells import (
    GpusTooSmall,
    IdleCells,
    InCells,
    MostLeft,
    NeedsPart,
    NoGuarantee,
    QuotaInUse,
    QuotaTooSmall,
    TakenBack,
)
from voda.domain.reasons.holds import After, ArrayBound, BegunOnce, FixedBound, InVain, LostRun, NextTry, Overdue
from voda.domain.reasons.nodes import (
    Drained,
    ForLauncher,
    LacksRoom,
    NeedsNoGpu,
    NoneFree,
    RoomInVain,
)
from voda.domain.reasons.outcomes import (
    Canceled,
    Canceling,
    Cause,
    Demoted,
    Failed,
    GetsPart,
    Halted,
    HasPart,
    JobReason,
    Keeps,
    Preempted,
    Promoted,
    QueueReason,
    Reason,
    Resized,
    Runs,
    Starts,
    Waits,
)
from voda.domain.reasons.places import Moved, PlaceCause, Spans
from voda.domain.reasons.policies import (
    AtMaximum,
    BestSpeedup,
    ByGain,
    ByValue,
    Compacted,
    Gain,
    GrowthNearRetry,
    GrowthUnpaid,
    HigherPriority,
    InOrder,
    LessValue,
    Order,
    OthersGrowthUnpaid,
    PolicyCause,
    ShrinkNeedless,
    UserTurns,
)
from voda.domain.reasons.stalls import Stuck
from voda.events.text.cells import cells_text, part_text, parts_text, request_text
from voda.events.text.failures import failure_text
from voda.events.text.nodes import nodes_text
from voda.events.text.requests import cancel_text, requested_text
from voda.text import counted, number_are, span

_ORDERS: Final[Mapping[Order, str]] = {
    "submission": "first submitted first",
    "time_left": "least time left first",
    "service": "least served first",
}
_Apart = Stuck | RoomInVain | Drained | PlaceCause
"""Causes that are no answer to why it is so many workers."""


def reason_text(reason: Reason) -> str:
    """Return the sentence of a reason: `waits: needs 4 GPUs, none is free`."""
    clauses = _clauses(reason)
    return f"{_outcome(reason)}{_joint(reason)}{'; '.join(clauses)}" if clauses else _outcome(reason)


def job_text(reason: JobReason | None) -> str:
    """Return why a job has its workers, or none, or how it ended; empty: there is no reason."""
    match reason:
        case None:
            return ""
        case Canceling():
            return "it is being canceled"
        case Canceled(why=why):
            return cancel_text(why)
        case Failed(why=why):
            return failure_text(why)
        case _:
            return reason_text(reason)


def unsized_text(reason: JobReason | None) -> str:
    """Return a reason without a size that was said already: its causes alone; empty: there are none."""
    if isinstance(reason, Starts | Resized) or (isinstance(reason, Keeps) and not reason.why):
        return "; ".join(_clauses(reason))
    return job_text(reason)


def _clauses(reason: Reason) -> list[str]:
    """Return the causes: priorities first, then users, then what a policy says."""
    higher = [cause for cause in reason.why if isinstance(cause, HigherPriority | UserTurns)]
    others = [cause for cause in reason.why if not isinstance(cause, HigherPriority | UserTurns)]
    own = []
    if isinstance(reason, Waits) and reason.needs:
        own = [f"needs {counted(reason.needs, 'GPU')}, {number_are(reason.free)} free"]
    elif isinstance(reason, Starts | Resized) and not any(not isinstance(cause, _Apart) for cause in others):
        own = ["as requested"]
    return [*map(_cause, higher), *own, *map(_cause, others)]


def _outcome(reason: Reason) -> str:
    match reason:
        case Preempted():
            return f"preempted{_by(reason)}"
        case Waits():
            return "waits"
        case Keeps(workers=size):
            return f"{'kept at' if _has(reason, *_THRASH) else 'keeps'} {_workers(size)}"
        case Starts(workers=size):
            return f"starts with {_workers(size)}"
        case Resized(workers=size) if _has(reason, ShrinkNeedless):
            return f"shrunk to {_workers(size)} only"
        case Resized(had=had, workers=size):
            return f"{'grown' if size > had else 'shrunk'} from {had:,} to {_workers(size)}"
        case Runs(workers=size):
            return f"runs with {_workers(size)}"
        case GetsPart():
            where = "a GPU that was whole" if reason.is_whole else "a GPU that others share"
            return f"gets {request_text(reason.request)} of {where}, on {reason.node}"
        case HasPart():
            return f"has {part_text(reason)}"
        case Halted(by=by, text=text):
            return requested_text("halted", by, text)
        case _:
            assert_never(reason)


def _has(reason: Reason, *kinds: type[Cause]) -> bool:
    return any(isinstance(cause, kinds) for cause in reason.why)


_THRASH: Final = (GrowthUnpaid, GrowthNearRetry, OthersGrowthUnpaid, ShrinkNeedless)


def _joint(reason: Reason) -> str:
    first = reason.why[0] if reason.why else None
    match reason:
        case Waits():
            return " " if isinstance(first, InVain | NextTry) else ": "
        case Starts():
            return ", " if first is None or isinstance(first, PolicyCause | _Apart) else ": "
        case GetsPart() | HasPart() | Halted():
            return "; "
        case _:
            return "; " if isinstance(first, _Apart) and not isinstance(reason, Resized) else ": "


def _cause(cause: Cause) -> str:
    match cause:
        case InOrder() | AtMaximum() | ByGain() | Gain() | Compacted() | BestSpeedup() | ByValue() | LessValue():
            return _policy(cause)
        case HigherPriority(jobs=jobs, gpus=gpus):
            has = "has" if jobs == 1 else "have"
            return f"{counted(jobs, 'job')} of higher priority {has} {counted(gpus, 'GPU')}"
        case UserTurns(users=users, gpus=gpus, had_gpus=had):
            return f"{counted(users, 'user')} take turns, this one had {had:,g} GPUs lately and has {gpus:,} now"
        case GrowthUnpaid(to=to, saved_s=saved_s, cost_s=cost_s, lasts_s=lasts_s):
            lasts = "" if lasts_s is None else f" in the {span(lasts_s)} that such GPUs are free of late,"
            return f"growing to {to} would save {saved_s} s{lasts} and cost {cost_s} s"
        case GrowthNearRetry(in_s=in_s):
            return f"a job whose program failed needs the GPUs again in {span(in_s)}"
        case OthersGrowthUnpaid():
            return "to grow other jobs by these GPUs would not pay"
        case ShrinkNeedless(to=to):
            return f"shrinking to {to} would free GPUs that no other job needs now"
        case Moved() | Spans():
            return _place(cause)
        case ForLauncher():
            return "the place of one worker is for its launcher"
        case NeedsNoGpu():
            return "needs no GPU"
        case LacksRoom() | NoneFree() | Stuck() | RoomInVain() | Drained():
            return nodes_text(cause)
        case After() | InVain() | NextTry() | BegunOnce() | FixedBound() | LostRun() | ArrayBound() | Overdue():
            return _held(cause)
        case InCells() | NoGuarantee() | QuotaTooSmall() | QuotaInUse() | IdleCells() | TakenBack():
            return cells_text(cause)
        case NeedsPart() | GpusTooSmall() | MostLeft():
            return parts_text(cause)
        case _:
            assert_never(cause)


def _policy(cause: PolicyCause) -> str:
    match cause:
        case InOrder():
            return _in_order(cause)
        case AtMaximum(workers=most, set_at=None):
            return f"{most:,} is its maximum"
        case AtMaximum(workers=most, set_by=by, set_at=at):
            when = f"{datetime.fromtimestamp(at or 0.0, UTC):%H:%M UTC, %b %d}"
            return f"{by} set its maximum to {most:,} at {when}" if by else f"its maximum was set to {most:,} at {when}"
        case ByGain(left_s=None):
            return "by gain, time left unknown"
        case ByGain(left_s=left_s):
            return f"by gain and time left, {left_s:,} s at this size"
        case Gain(per_gpu=per_gpu):
            return f"highest gain {per_gpu:.2f}/GPU"
        case Compacted(pending=pending):
            return f"compacted, while {counted(pending, 'job')} cannot start"
        case ByValue(per_gpu=per_gpu, next_per_gpu=other):
            than = f", for the next in line {other:,.2f} h" if other else ""
            return f"each GPU hour here ends all jobs together {per_gpu:,.2f} h sooner{than}"
        case LessValue(per_gpu=per_gpu, least_per_gpu=least):
            here = f"each GPU hour here would end all jobs together {per_gpu:,.2f} h sooner"
            return f"{here}, elsewhere {least:,.2f} h or more"
        case BestSpeedup(speedup=speedup, gpus=gpus):
            return f"best total speedup {speedup:.2f} on {counted(gpus, 'GPU')}"
        case _:
            assert_never(cause)


def _in_order(cause: InOrder) -> str:
    running, jobs, gpus = cause.running, cause.running + cause.others, counted(cause.gpus, "GPU")
    of = "" if cause.user is None else f" of {cause.user}" if cause.user else " without a user"
    of += "" if cause.priority is None else f" of priority {cause.priority}"
    if jobs == 1:
        return f"it is the only job{of} for {gpus}" if of or cause.is_alone else f"no other job may have its {gpus} now"
    order = _ORDERS[cause.order]
    if running == 1:
        return f"1 of {jobs:,} jobs{of} has {gpus}, {order}"
    sharing = f"{running:,} of {jobs:,}" if running < jobs else "both" if jobs == 2 else f"all {jobs:,}"
    return f"{sharing} jobs{of} share {gpus}, {order}"


def _by(reason: Preempted) -> str:
    if not reason.by:
        return ""
    jobs = [f"job {each.job_id}{f' of {each.user}' if each.user else ''}" for each in reason.by]
    return f" by {_listed([*jobs, *([f'{reason.more:,} more'] if reason.more else [])])}"


def _held(cause: After | InVain | NextTry | BegunOnce | FixedBound | LostRun | ArrayBound | Overdue) -> str:
    match cause:
        case After(jobs=jobs, more=more):
            named = [f"{each.name} ({each.phase})" if each.phase else each.name for each in jobs]
            return f"after {_listed([*named, *([f'{more} more'] if more else [])])}"
        case InVain(why=why):
            return f"in vain: {cancel_text(why)}"
        case NextTry():
            return "for the next try of its program"
        case BegunOnce():
            return "it is not restartable, so that nothing stops it but its owner"
        case FixedBound(needs=needs, others=others, most=most):
            return (
                f"its user's jobs that are not restartable may have {counted(most, 'GPU')} together: others have"
                f" {others}, or go first, and it needs {needs}"
            )
        case LostRun():
            return failure_text(cause)
        case ArrayBound(array=array, at_once=at_once):
            return f"array {array} has at most {counted(at_once, 'task')} at work at once"
        case Overdue(workers=workers, grace_s=grace_s):
            return f"{_workers(workers)} did not leave cells that a guarantee needs within {span(grace_s)}"
        case _:
            assert_never(cause)


def queue_text(reason: QueueReason) -> str:
    """Return why a policy moved a job to another of its queues."""
    match reason:
        case Demoted(served_gpu_s=served, limit_gpu_s=limit):
            return f"demoted: served {served:,} GPU-s since its start, limit {limit:,}"
        case Promoted(waited_s=waited, times=times, last_run_s=last):
            return f"promoted: waited {waited:,} s, {times:g} times its last run of {last:,} s"
        case _:
            assert_never(reason)


def _workers(count: int) -> str:
    return counted(count, "worker")


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _place(cause: PlaceCause) -> str:
    match cause:
        case Moved(cost_s=cost_s, saved_s=saved_s, room_for=job):
            saves = f" and saves {span(saved_s)}: it is on one node" if saved_s else ""
            return f"a move costs it {span(cost_s)}{saves}{f', and makes room for {job}' if job else ''}"
        case Spans(nodes=nodes, fits=False):
            return f"spans {nodes} nodes, as none is large enough"
        case Spans(nodes=nodes, cost_s=cost_s, move_s=move_s):
            return (
                f"spans {nodes} nodes: it ends {span(cost_s)} later so, and a later move would cost it {span(move_s)}"
            )
        case _:
            assert_never(cause)
