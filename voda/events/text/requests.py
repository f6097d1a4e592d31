"""Why somebody's job or node was halted, canceled or drained, as English. Pure."""

from typing import assert_never

from voda.domain.reasons.requests import (
    CancelCause,
    EndUnknown,
    NotCompleted,
    ObjectGone,
    Requested,
    TasksMissing,
)


def requested_text(done: str, by: str, text: str) -> str:
    """Return what was done at somebody's request: `halted by ada: disk is full`."""
    if not by:
        return text or done
    return f"{done} by {by}: {text}" if text else f"{done} by {by}"


def cancel_request_text(cause: CancelCause, *, is_kill: bool = False) -> str:
    """Return that a job is to be canceled, and why: `cancellation requested by ada: no data`."""
    by, why = (cause.by, cause.text) if isinstance(cause, Requested) else ("", cancel_text(cause))
    said = f"cancellation requested{f' by {by}' if by else ''}{', at once' if is_kill else ''}"
    return f"{said}: {why}" if why else said


def cancel_text(cause: CancelCause) -> str:
    """Return why a job is canceled, one clause."""
    match cause:
        case Requested(by=by, text=text):
            return requested_text("canceled", by, text)
        case ObjectGone(object=kind, is_replaced=is_replaced):
            return f"its {kind} was {'replaced by another one' if is_replaced else 'deleted'}"
        case NotCompleted(job=job, is_canceled=is_canceled, array=array):
            ended = f"{job} {'was canceled' if is_canceled else 'failed'}"
            return f"{ended}, of {array}" if array else ended
        case TasksMissing(array=array):
            return f"not all tasks came, of {array}"
        case EndUnknown(target=target):
            return f"{target} ended too long ago to know how"
        case _:
            assert_never(cause)
