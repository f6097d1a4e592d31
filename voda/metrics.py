"""The metrics of voda, and the port by which each part of it counts and times its own work.

Declare a metric here, feed it where it happens (`telemetry.count(STARTS, pool)`), and name it in
docs/metrics-reference.md; voda/telemetry shows it to Prometheus by itself.

Rules: base units; a label takes few values, and a job's id is never one; measuring changes nothing and raises nothing.
"""

from typing import Final, Literal

from msgspec import Struct

Scope = Literal["service", "election", "kubernetes"]
"""Where a metric is shown before it is fed: always, where a replica campaigns, or on Kubernetes."""
Labels = tuple[str, ...]

_MOMENTS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""What voda itself takes."""
_REQUESTS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
"""What a request to an API server takes; after 15 s it is given up."""
_CHANGES_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""What starting and resizing takes."""
_SPANS_S: Final = (1.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
"""What jobs take, to a week."""


class Metric(Struct, frozen=True, eq=False):
    """What is measured, and by which labels it is distinguished."""

    name: str
    """Without the prefix `voda_` and, of a counter, without the suffix `_total`."""
    meaning: str
    labels: Labels = ()
    scope: Scope = "service"
    shown: tuple[Labels, ...] = ()
    """Label values that are shown as 0 from the beginning, so that an alert sees the first one."""


class Counter(Metric, frozen=True, eq=False):
    """How often something happened."""


class Gauge(Metric, frozen=True, eq=False):
    """How large something is now."""


class Histogram(Metric, frozen=True, eq=False, kw_only=True):
    """How long things took, in seconds."""

    buckets: tuple[float, ...] = _MOMENTS_S


class Telemetry:
    """Takes what is measured, and drops it; a subclass keeps it."""

    def count(self, counter: Counter, *labels: str, by: float = 1) -> None:
        """Add to a counter; `labels` are the values of its labels, in their order."""

    def observe(self, histogram: Histogram, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""

    def set(self, gauge: Gauge, value: float, *labels: str) -> None:
        """Set a gauge."""


NO_TELEMETRY: Final = Telemetry()

BUILD_INFO: Final = Gauge("build_info", "1; which voda this is.", ("version", "python"))

JOBS_SUBMITTED: Final = Counter("jobs_submitted", "Jobs submitted.", ("pool",))
CANCELS_REQUESTED: Final = Counter("job_cancel_requests", "Cancellations asked for.", ("pool",))
JOBS_ENDED: Final = Counter("jobs_ended", "Jobs ended, by how.", ("pool", "phase"))
STARTS: Final = Counter("job_starts", "Starts of jobs, those after a preemption included.", ("pool",))
PREEMPTIONS: Final = Counter("preemptions", "Running jobs that a plan took all workers from.", ("pool",))
INTERRUPTIONS: Final = Counter(
    "job_interruptions", "Running jobs that lost all workers without a plan that says so.", ("pool",)
)
RESIZES: Final = Counter(
    "resizes", "Jobs that went from some workers to another number.", ("pool", "direction", "reason")
)
MIGRATIONS: Final = Counter("migrations", "Changes that moved workers of a job to other nodes.", ("pool",))
WORKERS_STARTED: Final = Counter("workers_started", "Workers started.", ("pool",))
WORKERS_EXITED: Final = Counter("workers_exited", "Workers exited, by cause.", ("pool", "cause"))
QUEUE_WAIT: Final = Histogram(
    "job_queue_wait_seconds", "From a job's submission to its first worker.", ("pool",), buckets=_SPANS_S
)
COMPLETION: Final = Histogram(
    "job_completion_seconds", "From a job's submission to its end (JCT).", ("pool", "phase"), buckets=_SPANS_S
)
START_DURATION: Final = Histogram(
    "start_duration_seconds", "From the plan that starts a job to all its workers.", ("pool",), buckets=_CHANGES_S
)
RESIZE_DURATION: Final = Histogram(
    "resize_duration_seconds",
    "From the plan that resizes a job to its new number of workers.",
    ("pool", "direction"),
    buckets=_CHANGES_S,
)

PLANS: Final = Counter("plans_adopted", "Plans adopted, by what made them due.", ("pool", "cause"))
QUEUE_MOVES: Final = Counter("job_queue_moves", "Jobs moved between a policy's queues.", ("pool",))
ELECTIONS: Final = Counter("leader_elections", "Leaderships taken.", ("pool",))
REPLAN_DURATION: Final = Histogram(
    "replan_duration_seconds", "Decisions: policy, no-thrash rule and placement.", ("pool",)
)
POLICY_DURATION: Final = Histogram(
    "policy_duration_seconds", "How many each job gets: the policy alone.", ("pool", "policy")
)
PLACEMENT_DURATION: Final = Histogram(
    "placement_duration_seconds", "Where workers go: the placer alone.", ("pool", "placer")
)
CONTROLLER_STEP_DURATION: Final = Histogram(
    "controller_step_duration_seconds", "Steps: read the log, decide if due, write.", ("pool",)
)

ACTIONS: Final = Counter("actions", "Actions on the cluster, by outcome.", ("pool", "action", "outcome"))
ACTION_DURATION: Final = Histogram(
    "action_duration_seconds", "Until the cluster took or refused an action.", ("pool", "action")
)
DRIFT_HEALED: Final = Counter(
    "reconcile_drift", "Facts that a resync found missing in the log and recorded.", ("pool",)
)
LAST_DRIFT: Final = Gauge("reconcile_drift_facts", "Facts that the last resync recorded.", ("pool",))

EVENTS: Final = Counter("events", "Events of the log, by type.", ("type",))
FACTS_APPENDED: Final = Counter("appended_facts", "Facts appended to the log by this process.")
APPEND_DURATION: Final = Histogram(
    "append_duration_seconds",
    "Appends to the log until durable, by outcome.",
    ("outcome",),
    shown=(("ok",), ("unavailable",), ("not_writable",)),
)
LOG_DAMAGED: Final = Gauge("log_damaged", "1 where the last verification in the background found damage, else 0.")
LOG_VERIFIED: Final = Gauge("log_verified_position", "Position up to which the last verification proved the log.")

FOLDERS_DELETED: Final = Counter(
    "job_folders_deleted",
    "Folders of ended jobs deleted, by why.",
    ("cause",),
    shown=(("age",), ("size",), ("request",)),
)
FOLDER_BYTES_DELETED: Final = Counter(
    "job_folder_deleted_bytes",
    "Bytes that they took.",
    ("cause",),
    shown=(("age",), ("size",), ("request",)),
)
FOLDER_BYTES: Final = Gauge("job_folder_bytes", "Bytes in the folders of ended jobs, at the last look.")

HTTP_REQUESTS: Final = Counter("http_requests", "Requests answered.", ("method", "route", "status"))
HTTP_DURATION: Final = Histogram(
    "http_request_duration_seconds", "Requests until answered; streams are not in it.", ("method", "route")
)
HTTP_IN_PROGRESS: Final = Gauge("http_requests_in_progress", "Requests being answered, streams included.")

LEASE_RENEWALS_FAILED: Final = Counter("lease_renewals_failed", "Renewals of the Lease that failed.", scope="election")

KUBERNETES_REQUESTS: Final = Counter(
    "kubernetes_requests",
    "Requests to the API server, by HTTP status; none: no answer came.",
    ("verb", "code"),
    scope="kubernetes",
)
KUBERNETES_REQUEST_DURATION: Final = Histogram(
    "kubernetes_request_duration_seconds",
    "Requests to the API server until the answer began.",
    ("verb",),
    scope="kubernetes",
    buckets=_REQUESTS_S,
)
MIRROR_DRIFT: Final = Counter(
    "mirror_drift", "Objects that a watch missed and a periodic resync corrected.", ("collection",), scope="kubernetes"
)
LAST_MIRROR_DRIFT: Final = Gauge(
    "mirror_drift_objects", "Objects that the last resync corrected.", ("collection",), scope="kubernetes"
)
GATES_LIFTED: Final = Counter(
    "gates_lifted", "Worker pods given their nodes, for kube-scheduler to bind.", scope="kubernetes"
)
GATE_DURATION: Final = Histogram(
    "gate_duration_seconds",
    "Lifting the gates of workers of a job that were due together, all requests of it.",
    scope="kubernetes",
    buckets=_REQUESTS_S,
)
WORKER_REFUSALS: Final = Counter(
    "worker_refusals", "Planned nodes that could not take workers of a job.", scope="kubernetes"
)
LAUNCHER_POKES: Final = Counter("launcher_pokes", "Launchers made to look at their hosts.", scope="kubernetes")
ADOPTIONS: Final = Counter(
    "adoptions",
    "Labelled objects taken in or refused.",
    ("outcome",),
    scope="kubernetes",
    shown=(("adopted",), ("refused",)),
)
ANNOUNCEMENTS: Final = Counter(
    "announcements",
    "Kubernetes Events, by what became of them.",
    ("outcome",),
    scope="kubernetes",
    shown=(("sent",), ("crowded",), ("overflowed",), ("late",), ("refused",)),
)

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
