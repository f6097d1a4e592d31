"""How operators name the pods of a job, and why a pod or a job failed. Pure.

Rules: index labels are not read: with runLauncherAsWorker they are off by one; a pod that was evicted or whose node is
gone has not failed: its program did nothing wrong.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import JobObject, KubeCondition, Pod, Terminated
from voda.kinds.pod_template import DEFAULT_BACKOFF_LIMIT

_REPLICA: Final = re.compile(r"-(worker|master)-(0|[1-9][0-9]{0,5})")
OWN_FAULT: Final = frozenset({"", "DeadlineExceeded"})
"""Reasons of a pod that failed by itself; any other is its kubelet's or its node's controller's."""
DISRUPTED: Final = "DisruptionTarget"


def index(job_name: str, pod: Pod) -> int | None:
    """Return the replica index of a pod of that job; None for a launcher and for what is no replica.

    The pod alone is enough, so this works for pods that outlive their job object too.
    """
    found = _REPLICA.fullmatch(pod.metadata.name.removeprefix(job_name))
    if found is None or not pod.metadata.name.startswith(job_name):
        return None
    return int(found[2]) + _first_index(pod)


def is_launcher(pod: Pod) -> bool:
    """Return whether a pod is the launcher of an MPIJob of either version."""
    labels = pod.metadata.labels
    return "launcher" in (labels.get(well_known.OPERATOR_JOB_ROLE), labels.get(well_known.OPERATOR_REPLICA_TYPE))


def _first_index(pod: Pod) -> int:
    # Of all roles only the workers beside a Master begin at another index than 0.
    return 1 if pod.metadata.annotations.get(well_known.FIRST_INDEX) == "1" else 0


def lost(pod: Pod) -> str:
    """Return why a pod ended without its program's fault, in one word such as Evicted; empty where it did not."""
    if pod.status.phase not in ("Failed", "Unknown"):
        return ""
    for condition in pod.status.conditions:
        if condition.type == DISRUPTED and condition.status == "True":
            return condition.reason or DISRUPTED
    if pod.status.reason not in OWN_FAULT:
        return pod.status.reason
    return "NodeLost" if pod.status.phase == "Unknown" else ""


def limit(kind: str, condition: KubeCondition) -> str:
    """Return which limit that its manifest sets a job failed for, a part of a sentence; empty: for none."""
    said, message = condition.reason.removeprefix(kind), condition.message.lower()
    if said == "DeadlineExceeded" or "active longer than" in message:
        return "it ran longer than activeDeadlineSeconds allows"
    if said.startswith("BackoffLimitExceeded") or "backoff limit" in message:
        return "it failed more often than backoffLimit allows"
    return ""


def exhausted(job: JobObject, failures: int) -> str:
    """Return why a job whose workers failed by themselves that often has failed for good; empty while it may go on."""
    asked = job.spec.run_policy.backoff_limit
    most = DEFAULT_BACKOFF_LIMIT if asked is None else asked
    if failures <= most:
        return ""
    times = "once" if failures == 1 else f"{failures} times"
    return f"its workers failed by themselves {times}, more often than backoffLimit {most} allows"


def last_failure(pods: Iterable[Pod]) -> str:
    """Return how the latest pod that failed ended: `digits-launcher-x7f ended with exit code 3 (Error)`; empty: none
    failed.
    """
    failed = sorted(
        (pod for pod in pods if pod.status.phase == "Failed" or _terminated(pod) is not None),
        key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name),
    )
    return _how(failed[-1]) if failed else ""


def reason(kind: str, condition: KubeCondition, pods: Sequence[Pod]) -> str:
    """Return why an operator calls a job failed, one sentence: how its pods ended, and what the condition says."""
    how, why = last_failure(pods), _why(kind, condition)
    if how and why:
        return f"{how}; {why}"
    return how or why or f"its operator calls the {kind} failed and gives no reason"


def _how(pod: Pod) -> str:
    name = pod.metadata.name
    if cause := lost(pod):
        return _joined(f"{name} was lost ({cause})", pod.status.message)
    ended = _terminated(pod)
    if ended is None:
        return _joined(f"{name} failed ({pod.status.reason or 'no reason given'})", pod.status.message)
    what = f"{name} ended with exit code {ended.exit_code}"
    if ended.reason and ended.reason != "Error":
        what += f" ({ended.reason})"
    return _joined(what, ended.message)


def _terminated(pod: Pod) -> Terminated | None:
    """Return how the first container that failed ended; for one that was restarted in place, its last end."""
    statuses = pod.status.container_statuses
    found = [state.terminated for each in statuses for state in (each.state, each.last_state) if state.terminated]
    return next((each for each in found if each.exit_code), None)


def _why(kind: str, condition: KubeCondition) -> str:
    """Return the reason that the operator gives, unless it says only that the job failed."""
    if why := limit(kind, condition):
        return why
    said = condition.reason.removeprefix(kind)
    if said in ("", "Failed", f"{kind}Failed"):
        return _short(condition.message) if not _says_nothing(condition.message) else ""
    return _joined(said, condition.message)


def _says_nothing(message: str) -> bool:
    return not message or message.endswith("has failed")


def _joined(what: str, message: str) -> str:
    return f"{what}: {_short(message)}" if message.strip() else what


def _short(message: str) -> str:
    """Return the first line of a foreign text, without control characters, cut short."""
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    line = "".join(char for char in line if char.isprintable()).rstrip(".")
    return line if len(line) <= 200 else f"{line[:197]}..."
