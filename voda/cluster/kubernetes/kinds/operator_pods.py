"""How operators name the pods of a job, and why a pod or a job failed. Pure.

Rules: index labels are not read: with runLauncherAsWorker they are off by one; a pod that was evicted or whose node is
gone has not failed: its program did nothing wrong.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal

from msgspec.structs import replace

from voda.backoff import delay_s
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.container_status import Terminated
from voda.cluster.kubernetes.objects import JobObject, KubeCondition, Pod
from voda.domain.reasons.failures import Exited, FailedTooOften, GivenUp, HowEnded, PodFailed, PodLost, ReplicaFailed
from voda.kinds.pod_template import DEFAULT_BACKOFF_LIMIT
from voda.programs.last_words import LastWords, last_words

_REPLICA: Final = re.compile(r"-(?:worker|master)-(0|[1-9][0-9]{0,5})")
_REPLICA_OF_JOB: Final = re.compile(r"-(0|[1-9][0-9]{0,5})-[a-z0-9]{5}")
_ONLY: Final = re.compile(r"-[a-z0-9]{5}")
"""Of a Job without numbers, which has one pod."""
EVICTED: Final = "Evicted"
OWN_FAULT: Final = frozenset({"", "DeadlineExceeded", EVICTED})
"""Reasons of a pod that failed by itself; any other is its kubelet's or its node's controller's.

A kubelet that evicts pods because its node lacks something marks them as disrupted; without that mark, a pod used more
local storage than its own limits allow.
"""
DISRUPTED: Final = "DisruptionTarget"
_FIRST_RESTART_S: Final = 1.0
_LONGEST_RESTART_S: Final = 300.0
_MOST_MESSAGE_BYTES: Final = 2_048
"""Of the end of a log that a kubelet keeps as a termination message."""


def owner_name(pod: Pod) -> str:
    """Return the name of the job object that a pod's labels name; empty: they name none.

    The pods of mpi-operator's launchers, and of JobSets, are those of a Job too, and have both labels.
    """
    return pod.metadata.labels.get(well_known.JOBSET_NAME) or _made_by(pod)


def index(pod: Pod) -> int | None:
    """Return the replica index of a pod; None for a launcher and for what is no replica.

    The pod alone is enough, so this works for pods that outlive their job object too.
    """
    job_name, name, labels = _made_by(pod), pod.metadata.name, pod.metadata.labels
    if not name.startswith(job_name):
        return None
    of_operator = well_known.OPERATOR_JOB_NAME in labels
    if found := (_REPLICA if of_operator else _REPLICA_OF_JOB).fullmatch(name, len(job_name)):
        return int(found[1]) + _first_index(pod)
    is_only = not of_operator and well_known.JOBSET_NAME not in labels and _ONLY.fullmatch(name, len(job_name))
    return 0 if is_only else None


def _made_by(pod: Pod) -> str:
    """Return the name of the object after which a pod is named."""
    labels = pod.metadata.labels
    return labels.get(well_known.OPERATOR_JOB_NAME) or labels.get(well_known.JOB_NAME, "")


def is_launcher(pod: Pod) -> bool:
    """Return whether a pod is the launcher of an MPIJob of either version."""
    labels = pod.metadata.labels
    return "launcher" in (labels.get(well_known.OPERATOR_JOB_ROLE), labels.get(well_known.OPERATOR_REPLICA_TYPE))


def is_taken(pod: Pod) -> bool:
    """Return whether a pod was deleted or evicted before its program had finished, whatever that exits with."""
    is_disrupted = any(each.type == DISRUPTED and each.status == "True" for each in pod.status.conditions)
    return is_disrupted or leaves_unfinished(pod)


def leaves_unfinished(pod: Pod) -> bool:
    """Return whether a pod's deletion was requested while its program still ran, as far as that is known."""
    if not pod.is_leaving or not pod.is_over:
        return pod.is_leaving
    # Times are of whole seconds, and a program may end at once.
    requested_at = pod.leaves_at - pod.metadata.deletion_grace_period_seconds
    ended = ended_at(pod)
    return ended is None or ended >= requested_at


def ended_at(pod: Pod) -> float | None:
    """Return when the last container of a pod ended, seconds since the epoch; None: none has, as far as is known."""
    ends = (each.state.terminated for each in pod.status.container_statuses)
    ended = max((end.finished_at for end in ends if end is not None), default="")
    return datetime.fromisoformat(ended).timestamp() if ended else None


def has_succeeded(job: JobObject, pod: Pod) -> bool:
    """Return whether a pod of this very object ended by itself, and well; one that is deleted may exit with 0, too."""
    if pod.status.phase != "Succeeded" or is_taken(pod):
        return False
    meta = job.metadata
    # The owner of a launcher may be a Job in between.
    owners = [owner.uid for owner in pod.metadata.owner_references if owner.kind != "Job"]
    is_anothers = bool(owners) and meta.uid not in owners
    # What an earlier object of the name left is older than this one.
    return not is_anothers and pod.metadata.creation_timestamp >= meta.creation_timestamp


def _first_index(pod: Pod) -> int:
    # Of all roles only the workers beside a Master begin at another index than 0.
    return 1 if pod.metadata.annotations.get(well_known.FIRST_INDEX) == "1" else 0


def lost(pod: Pod) -> str:
    """Return why a pod ended without its program's fault, in one word; empty where it did not."""
    if pod.status.phase != "Failed":
        return ""
    for condition in pod.status.conditions:
        if condition.type == DISRUPTED and condition.status == "True":
            return condition.reason or DISRUPTED
    return "" if pod.status.reason in OWN_FAULT else pod.status.reason


def is_over_limit(pod: Pod) -> bool:
    """Return whether a kubelet evicted a pod that used more than its own limits allow."""
    return pod.status.phase == "Failed" and pod.status.reason == EVICTED and not lost(pod)


def is_past_deadline(condition: KubeCondition) -> bool:
    """Return whether a job failed because it ran longer than its manifest allows."""
    return "DeadlineExceeded" in condition.reason or "active longer than" in condition.message.lower()


def limit(kind: str, condition: KubeCondition) -> Literal["", "deadline", "backoff"]:
    """Return which limit that its manifest sets a job failed for; empty: for none."""
    said, message = condition.reason.removeprefix(kind), condition.message.lower()
    if is_past_deadline(condition):
        return "deadline"
    if said.startswith("BackoffLimitExceeded") or "backoff limit" in message:
        return "backoff"
    return ""


def most_failures(job: JobObject) -> int:
    """Return how often workers of a job may fail by themselves, and it goes on."""
    if well_known.ONE_TRY in job.metadata.annotations:
        return 0
    asked = job.spec.run_policy.backoff_limit
    return DEFAULT_BACKOFF_LIMIT if asked is None else asked


def restart_in_s(failures: int) -> float:
    """Return the pause in seconds before workers are made anew that failed so often by themselves."""
    return delay_s(failures, first_s=_FIRST_RESTART_S, longest_s=_LONGEST_RESTART_S)


def exhausted(job: JobObject, failures: int) -> FailedTooOften | None:
    """Return why a job whose workers failed by themselves that often has failed for good; None while it may go on."""
    most = most_failures(job)
    return FailedTooOften(times=failures, most=most) if failures > most else None


def last_failure(pods: Iterable[Pod]) -> ReplicaFailed | None:
    """Return how the latest pod that failed ended, rather one that does not only speak of another's end."""
    failed = sorted(
        (pod for pod in pods if pod.status.phase == "Failed" or _terminated(pod) is not None),
        key=lambda pod: (not _is_echo(pod), pod.metadata.creation_timestamp, pod.metadata.name),
    )
    return _failure(failed[-1]) if failed else None


def failure_of(pods: Iterable[Pod]) -> ReplicaFailed:
    """Return how the one of these pods ended that failed first of all; see `last_failure`."""
    return _failure(min(pods, key=lambda pod: (_is_echo(pod), pod.metadata.name)))


def given_up(kind: str, condition: KubeCondition, pods: Sequence[Pod]) -> GivenUp:
    """Return why an operator calls a job failed: how its pods ended, and what the condition says beside that."""
    found = GivenUp(object=kind, limit=limit(kind, condition), last=last_failure(pods))
    if found.limit:
        return found
    said = condition.reason.removeprefix(kind)
    if said not in ("", "Failed", f"{kind}Failed"):
        return replace(found, word=said, text=_short(condition.message))
    return found if condition.message.endswith("has failed") else replace(found, text=_short(condition.message))


def _failure(pod: Pod) -> ReplicaFailed:
    return ReplicaFailed(replica=pod.metadata.name, how=_how(pod))


def _how(pod: Pod) -> HowEnded:
    ended = _terminated(pod)
    if cause := lost(pod):
        return PodLost(word=cause, said=_short(pod.status.message))
    if ended is None or pod.status.reason:
        # Its kubelet says more than the exit code of a container that it killed.
        return PodFailed(word=pod.status.reason, said=_short(pod.status.message))
    said = _said(ended)
    code, word = said.exit_code or ended.exit_code, "" if ended.reason == "Error" else ended.reason
    text = _short(said.text())
    return Exited(exit_code=code, word=word, said=text) if code >= 0 else Exited(signal=-code, word=word, said=text)


def _terminated(pod: Pod) -> Terminated | None:
    """Return how the first container that failed ended; for one that was restarted in place, its last end."""
    statuses = pod.status.container_statuses
    found = [state.terminated for each in statuses for state in (each.state, each.last_state) if state.terminated]
    return next((each for each in found if each.exit_code), None)


def _is_echo(pod: Pod) -> bool:
    ended = _terminated(pod)
    return ended is not None and _said(ended).is_echo


def _said(ended: Terminated) -> LastWords:
    """Return what a container said last; of what its kubelet cut, the first line is a part of one."""
    is_cut = len(ended.message.encode()) >= _MOST_MESSAGE_BYTES
    return last_words(ended.message.partition("\n")[2] if is_cut else ended.message)


def _short(message: str) -> str:
    """Return the first line of a foreign text, without control characters, cut short."""
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    line = "".join(char for char in line if char.isprintable()).rstrip(".")
    return line if len(line) <= 200 else f"{line[:197]}..."
