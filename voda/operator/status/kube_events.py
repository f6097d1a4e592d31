"""Kubernetes Events: what `kubectl describe` shows below a job object.

Rules: pure; a reason, once released, is never renamed, because people filter by it; the name of an Event follows from
its content, so that sending it again is answered by "exists already" and doubles nothing.
"""

import re
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, Literal, get_args

from msgspec import Struct, to_builtins

from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.trainjob import API_VERSION, KIND, trainjob_of
from voda.cluster.kubernetes.objects import ObjectMeta
from voda.kubernetes_client.paths import api_path

_Normal = Literal[
    "Queued",
    "Started",
    "Resumed",
    "Resized",
    "Preempted",
    "Halted",
    "Migrated",
    "Changed",
    "Completed",
    "Canceling",
    "Canceled",
    "Recreated",
    "Suspended",
    "Moved",
]
_Warning = Literal[
    "Failed",
    "WorkerLost",
    "WorkerRefused",
    "SickGpu",
    "Stalled",
    "Stuck",
    "ActionFailed",
    "ScaledByHand",
    "Invalid",
    "NotAccepted",
    "NotHonoured",
    "NotManaged",
    "WaitsForGpus",
    "NotMoved",
]
Reason = _Normal | _Warning
WARNINGS: Final[frozenset[str]] = frozenset(get_args(_Warning))
_COMPONENT: Final = "voda"
_MOST_LETTERS: Final = 1_000
"""Of a message; the API server takes 1,024."""
_LONGEST_NAME: Final = 200
_ODD: Final = re.compile(r"[^a-z0-9.-]+")


class Subject(Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Announcement(Struct, frozen=True, kw_only=True):
    subject: Subject
    reason: Reason
    message: str
    at: float
    """Seconds since the epoch."""
    key: str
    """Distinguishes it from all other announcements about the subject for this reason."""


def subject_of(kind: JobKind, meta: ObjectMeta) -> Subject:
    """Return a job object, or the TrainJob that it was made of, as the subject of Events."""
    if (made_of := trainjob_of(meta)) is not None:
        return Subject(api_version=API_VERSION, kind=KIND, **made_of._asdict())
    return Subject(api_version=kind.api_version, kind=kind.name, namespace=meta.namespace, name=meta.name, uid=meta.uid)


def events_path(namespace: str) -> str:
    """Return the path of the Events about objects of a namespace."""
    return api_path("v1", "events", namespace)


def event_object(announcement: Announcement) -> dict[str, Any]:
    """Return the Event to create."""
    at = rfc3339(announcement.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _name(announcement), "namespace": announcement.subject.namespace},
        "involvedObject": to_builtins(announcement.subject),
        "reason": announcement.reason,
        "message": shortened(announcement.message, _MOST_LETTERS),
        "type": "Warning" if announcement.reason in WARNINGS else "Normal",
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def rfc3339(at: float) -> str:
    """Return an instant as Kubernetes writes it, in whole seconds."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shortened(text: str, most_bytes: int) -> str:
    """Return a text that takes up to so many bytes, printable and on one line."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    encoded = line.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return encoded.decode()
    return encoded[: most_bytes - 3].decode("utf-8", "ignore") + "..."


def _name(announcement: Announcement) -> str:
    digest = blake2b(
        f"{announcement.subject.uid}\n{announcement.reason}\n{announcement.key}".encode("utf-8", "replace"),
        digest_size=12,
    )
    # The job's name may be one that no Event can have, where the job is refused for it.
    stem = _ODD.sub("-", announcement.subject.name)[:_LONGEST_NAME].strip(".-") or "job"
    return f"{stem}.{digest.hexdigest()}"
