"""JobStates: objects of voda's own, one for each job object, by which `kubectl get jobstates` shows how jobs stand.

Rules: pure; they follow from the log's present, and nothing is decided by them. voda reads them only to write no more
than what differs, such as one that others deleted or changed. They go with the job object that owns them.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import ObjectMeta
from voda.kubernetes_client.paths import api_path
from voda.operator.status.kube_events import rfc3339, shortened
from voda.projections.jobs.record import JobRecord
from voda.projections.jobs.record_text import explanation_text

API_VERSION: Final = "voda.dev/v1alpha1"
DISCOVERY: Final = f"/apis/{API_VERSION}"
_MOST_LETTERS: Final = 512
_MINUTE_S: Final = 60.0
_LEAST_MOVE_S: Final = 60.0
_LEAST_MOVE: Final = 0.05
"""Share of the time left by which an estimate has to move to be written anew."""
_MOST_YEARS_S: Final = 10 * 365 * 86_400.0
"""An end that is further away is no estimate, and the calendar ends somewhere, too."""


class ReadState(Struct, frozen=True, rename="camel"):
    """A JobState as the cluster has it."""

    metadata: ObjectMeta
    job: str | None = None
    state: str | None = None
    explanation: str | None = None
    estimated_finish: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What it shows, as `shown_fields` has it."""
        return {
            "job": self.job,
            "state": self.state,
            "explanation": self.explanation,
            "estimatedFinish": self.estimated_finish,
        }


def shown_fields(record: JobRecord, finishes_at: float | None, now: float, shown_finish: str | None) -> dict[str, Any]:
    """Return what is shown of a job, live or ended; None = nothing. `shown_finish` is the estimate shown now."""
    return {
        "job": record.spec.job_id,
        "state": state_of(record),
        "explanation": shortened(explanation_text(record), _MOST_LETTERS) or None,
        "estimatedFinish": settled_finish(shown_finish, finishes_at, now) if record.is_live else None,
    }


def refused_fields(sentence: str) -> dict[str, Any]:
    """Return what is shown of an object that voda does not run, and why."""
    explanation = shortened(sentence, _MOST_LETTERS)
    return {"job": None, "state": "Refused", "explanation": explanation, "estimatedFinish": None}


def job_states_path(namespace: str, name: str = "") -> str:
    """Return the path of one JobState, or of all in a namespace; without a namespace of all in the cluster."""
    return api_path(API_VERSION, "jobstates", namespace, name)


def state_name(kind: JobKind, meta: ObjectMeta) -> str:
    """Return the name of an object's JobState: two kinds may have objects of one name."""
    return f"{meta.name}.{kind.name.lower()}"


def job_state(kind: JobKind, meta: ObjectMeta, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JobState of an object, which owns it: with the object it is collected."""
    owner = {"apiVersion": kind.api_version, "kind": kind.name, "name": meta.name, "uid": meta.uid}
    metadata = {"name": state_name(kind, meta), "namespace": meta.namespace, "ownerReferences": [owner]}
    return {"apiVersion": API_VERSION, "kind": "JobState", "metadata": metadata, "objectKind": kind.name, **fields}


def state_of(record: JobRecord) -> str:
    """Return a job's state in a word, with workers observed/planned while it has or gets any: `Running 4/8`."""
    have, planned = len(record.job.workers), len(record.planned)
    if not record.is_live:
        return str(record.phase.value)
    if record.is_canceling:
        return "Canceling"
    if have:
        return f"{'Running' if planned else 'Halting'} {have}/{planned}"
    if planned:
        return f"Starting 0/{planned}"
    if record.is_halted:
        return "Halted"
    return "Preempted" if record.is_preempted else "Waiting"


def settled_finish(shown: str | None, expected: float | None, now: float) -> str | None:
    """Return the estimated finish to show, in whole minutes; the one shown where the new one hardly differs."""
    before = _instant(shown)
    if expected is None or not expected < now + _MOST_YEARS_S:
        # Now and then no forecast can be made; the last one stays until it is plainly over.
        return shown if before is not None and now < before + _LEAST_MOVE_S else None
    minute = -(-expected // _MINUTE_S) * _MINUTE_S
    if before is None or abs(minute - before) > max(_LEAST_MOVE_S, _LEAST_MOVE * (expected - now)):
        return rfc3339(minute)
    return shown


def _instant(text: str | None) -> float | None:
    """Return the instant that an estimate names; None where there is none."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
