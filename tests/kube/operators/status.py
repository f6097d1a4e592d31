"""Conditions of a job, as both operators keep them.

Rule: the same status and reason again changes nothing; Running and Restarting exclude each other; a failure or a
success ends Running.
"""

from tests.kube.client import Object, now_text


def has_condition(status: Object, kind: str) -> bool:
    """Say whether a condition is True."""
    found = find_condition(status, kind)
    return found is not None and found["status"] == "True"


def find_condition(status: Object, kind: str) -> Object | None:
    """Return a condition, whatever its status."""
    return next((each for each in status.get("conditions", ()) if each["type"] == kind), None)


def is_finished(status: Object) -> bool:
    """Say whether a job succeeded or failed."""
    return has_condition(status, "Succeeded") or has_condition(status, "Failed")


def set_condition(status: Object, kind: str, *, reason: str, message: str = "", value: bool = True) -> bool:
    """Set a condition, and say whether that changed anything."""
    now, text, old = now_text(), str(value), find_condition(status, kind)
    if old is not None and old["status"] == text and old["reason"] == reason:
        return False
    since = old["lastTransitionTime"] if old is not None and old["status"] == text else now
    new = {"type": kind, "status": text, "reason": reason, "message": message}
    new |= {"lastUpdateTime": now, "lastTransitionTime": since}
    status["conditions"] = [*_others(status, kind), new]
    return True


def _others(status: Object, kind: str) -> list[Object]:
    left = []
    for each in status.get("conditions", ()):
        if each["type"] == kind or {kind, each["type"]} == {"Running", "Restarting"}:
            continue
        ends = kind in ("Failed", "Succeeded") and each["type"] in ("Running", "Failed")
        left.append({**each, "status": "False"} if ends else each)
    return left
