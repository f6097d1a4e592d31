"""How programs ended and why jobs failed, as English sentences. Pure."""

from typing import assert_never

from voda.domain.reasons.failures import (
    Exited,
    FailedTooOften,
    FirstIsDone,
    GivenUp,
    JobFailure,
    KilledForMemory,
    NoNamespace,
    NotRun,
    ObjectVoid,
    PastDeadline,
    PodFailed,
    PodLost,
    ProgramFailure,
    ReplicaFailed,
    ToldToEnd,
    VoidSuccess,
)
from voda.domain.reasons.holds import LostRun
from voda.domain.reasons.nodes import Said
from voda.programs.launchers import CANNOT_RUN
from voda.text import counted, memory_size


def end_text(how: ProgramFailure) -> str:
    """Return how a program ended, to follow its replica's name: `ended with exit code 3: no data`."""
    return _end(how) + _last(how)


def failure_text(reason: JobFailure | None) -> str:
    """Return why a job failed for good, one sentence; empty: that is not known."""
    match reason:
        case None:
            return ""
        case Said(text=text):
            return text
        case ReplicaFailed(replica=replica, how=how):
            return f"{replica} {_end(how)}{_verdict(reason)}{_last(how)}"
        case PastDeadline(limit_s=limit_s):
            return f"was active for more than {limit_s:g} s (activeDeadlineSeconds)"
        case GivenUp(last=last):
            parts = [part for part in (failure_text(last), _operators_word(reason)) if part]
            return "; ".join(parts) or f"its operator calls the {reason.object} failed and gives no reason"
        case FailedTooOften(times=times, most=most, last=last):
            often = "once" if times == 1 else f"{times} times"
            why = f"its workers failed by themselves {often}, more often than backoffLimit {most} allows"
            return f"{why}; {failure_text(last)}" if last is not None else why
        case NoNamespace(namespace=namespace):
            return f"namespace {namespace!r} does not exist: create it, and submit the job again"
        case LostRun(cause=cause):
            return f"it is not restartable, and has lost its workers ({cause.replace('_', ' ') or 'stopped'})"
        case _:
            assert_never(reason)


def void_text(reason: ObjectVoid | None) -> str:
    """Return why an object is made anew; empty: its pods say so."""
    match reason:
        case None:
            return ""
        case FirstIsDone():
            return "its replicas only work with replica 0, which has succeeded and gets no pod any more: all start anew"
        case VoidSuccess(operator=operator, replica=replica):
            who = "its launcher" if replica is None else f"replica {replica}"
            of = f"what {operator} took for the success of {who} is none"
            if reason.was_deleted:
                return f"{of}: its pod was deleted before its program had finished"
            return f"{of} that is known: its pod was deleted, and nobody saw whether its program had finished"
        case _:
            assert_never(reason)


def _end(how: ProgramFailure) -> str:
    match how:
        case Said(text=text):
            return text
        case NotRun(problem=problem):
            return f"could not run: {problem}"
        case KilledForMemory(limit_bytes=limit):
            return f"was killed for memory{f': its limit is {memory_size(limit)}' if limit else ''}"
        case Exited(signal=signal, exit_code=code, word=word):
            of_code = f"exit code {code}" if signal and code else CANNOT_RUN.get(code, "")
            notes = "".join(f" ({note})" for note in (of_code, word) if note)
            return f"was killed by signal {signal}{notes}" if signal else f"ended with exit code {code}{notes}"
        case ToldToEnd():
            return "was told to end, not by voda"
        case PodLost(word=word):
            return f"was lost ({word})"
        case PodFailed(word=word):
            return f"failed ({word or 'no reason given'})"
        case _:
            assert_never(how)


def _last(how: ProgramFailure) -> str:
    """Return what a program said last, and what helps, to follow how it ended."""
    if isinstance(how, Said):
        return ""
    said = f"{'; its last lines' if how.are_lines else ''}: {how.said}" if how.said else ""
    return f"{said}; {how.hint}" if how.hint else said


def _verdict(reason: ReplicaFailed) -> str:
    if isinstance(reason.how, ToldToEnd):
        return ", and its job is not restartable"
    if reason.policy:
        takes = "ExitCode takes that as permanent" if reason.policy == "ExitCode" else "is Never"
        return f"; its restartPolicy {takes}"
    return f" after {counted(reason.restarts, 'restart')} (backoffLimit)" if reason.restarts else ""


def _operators_word(reason: GivenUp) -> str:
    if reason.limit == "deadline":
        return "it ran longer than activeDeadlineSeconds allows"
    if reason.limit == "backoff":
        return "it failed more often than backoffLimit allows"
    return ": ".join(part for part in (reason.word, reason.text) if part)
