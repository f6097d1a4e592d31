"""The counters and histograms, and how each part of the service feeds its own.

Rules: base units; labels take few values, and a job's id is never one; docs/metrics-reference.md names them all.
"""

import platform
from functools import cache, partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, ProcessCollector

from voda import __version__
from voda.log.instrumented_store import Appended

_MOMENTS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""What voda itself takes."""
_CHANGES_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""What starting and resizing takes."""
_SPANS_S: Final = (1.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
"""What jobs take, to a week."""


class Metrics:
    """All that is counted and timed, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.jobs_submitted = self._counter("jobs_submitted", "Jobs submitted.", "pool")
        self.cancels_requested = self._counter("job_cancel_requests", "Cancellations asked for.", "pool")
        self.jobs_ended = self._counter("jobs_ended", "Jobs ended, by how.", "pool", "phase")
        self.starts = self._counter("job_starts", "Starts of jobs, those after a preemption included.", "pool")
        self.preemptions = self._counter("preemptions", "Running jobs that a plan took all workers from.", "pool")
        self.interruptions = self._counter(
            "job_interruptions", "Running jobs that lost all workers without a plan that says so.", "pool"
        )
        self.resizes = self._counter(
            "resizes", "Jobs that went from some workers to another number.", "pool", "direction", "reason"
        )
        self.migrations = self._counter("migrations", "Changes that moved workers of a job to other nodes.", "pool")
        self.workers_started = self._counter("workers_started", "Workers started.", "pool")
        self.workers_exited = self._counter("workers_exited", "Workers exited, by cause.", "pool", "cause")
        self.plans = self._counter("plans_adopted", "Plans adopted, by what made them due.", "pool", "cause")
        self.queue_moves = self._counter("job_queue_moves", "Jobs moved between a policy's queues.", "pool")
        self.elections = self._counter("leader_elections", "Leaderships taken.", "pool")
        self.events = self._counter("events", "Events of the log, by type.", "type")
        self.actions = self._counter("actions", "Actions on the cluster, by outcome.", "pool", "action", "outcome")
        self.drift_healed = self._counter(
            "reconcile_drift", "Facts that a relist found missing in the log, and recorded.", "pool"
        )
        self.facts_appended = self._counter("appended_facts", "Facts appended to the log by this process.")
        self.http_requests = self._counter("http_requests", "Requests answered.", "method", "route", "status")

        self.queue_wait = self._histogram(
            "job_queue_wait_seconds", "From a job's submission to its first worker.", _SPANS_S, "pool"
        )
        self.completion = self._histogram(
            "job_completion_seconds", "From a job's submission to its end (JCT).", _SPANS_S, "pool", "phase"
        )
        self.start_duration = self._histogram(
            "start_duration_seconds", "From the plan that starts a job to all its workers.", _CHANGES_S, "pool"
        )
        self.resize_duration = self._histogram(
            "resize_duration_seconds",
            "From the plan that resizes a job to its new number of workers.",
            _CHANGES_S,
            "pool",
            "direction",
        )
        self.replan = self._histogram(
            "replan_duration_seconds", "Decisions: policy, no-thrash rule and placement.", _MOMENTS_S, "pool"
        )
        self.policy = self._histogram(
            "policy_duration_seconds", "How many each job gets: the policy alone.", _MOMENTS_S, "pool", "policy"
        )
        self.placement = self._histogram(
            "placement_duration_seconds", "Where workers go: the placer alone.", _MOMENTS_S, "pool", "placer"
        )
        self.step = self._histogram(
            "controller_step_duration_seconds", "Steps: read the log, decide if due, write.", _MOMENTS_S, "pool"
        )
        self.action = self._histogram(
            "action_duration_seconds", "Until the cluster took or refused an action.", _MOMENTS_S, "pool", "action"
        )
        self.append = self._histogram(
            "append_duration_seconds", "Appends to the log until durable, by outcome.", _MOMENTS_S, "outcome"
        )
        self.http = self._histogram(
            "http_request_duration_seconds",
            "Requests until answered; streams are not in it.",
            _MOMENTS_S,
            "method",
            "route",
        )
        self.drift = Gauge(
            "voda_reconcile_drift_facts", "Facts that the last relist healed.", ["pool"], registry=self.registry
        )
        self.http_in_progress = Gauge(
            "voda_http_requests_in_progress", "Requests being answered, streams included.", registry=self.registry
        )
        build = Gauge("voda_build_info", "1; which voda this is.", ["version", "python"], registry=self.registry)
        build.labels(__version__, platform.python_version()).set(1)
        # Shown as 0 from the beginning, so that an alert sees the first one.
        for outcome in ("ok", "unavailable", "not_writable"):
            self.append.labels(outcome)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def watch(self, pool: str) -> "PoolMeter":
        """Return what measures the controller and the reconciler of a pool."""
        return PoolMeter(self, pool)

    @property
    def appended(self) -> Appended:
        """What a InstrumentedStore tells its appends."""
        facts = self.facts_appended
        latency = cache(self.append.labels)

        def appended(outcome: str, count: int, seconds: float) -> None:
            latency(outcome).observe(seconds)
            if outcome == "ok":
                facts.inc(count)

        return appended

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"voda_{name}", help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"voda_{name}", help_text, labels, buckets=buckets, registry=self.registry)


class PoolMeter:
    """Measures one pool: an Observer of its controller, and told of its reconciler's actions.

    Attributes:
        allocated: for timed_policies.
        placed: for timed_placers.
    """

    def __init__(self, metrics: Metrics, pool: str) -> None:
        self._pool = pool
        self._actions, self._action = metrics.actions, metrics.action
        self._drift_healed, self._drift = metrics.drift_healed.labels(pool), metrics.drift.labels(pool)
        self.stepped = metrics.step.labels(pool).observe
        self.decided = metrics.replan.labels(pool).observe
        self.allocated = partial(_observe, metrics.policy, pool)
        self.placed = partial(_observe, metrics.placement, pool)

    def applied(self, action: str, outcome: str, seconds: float) -> None:
        """Take note of an action on the cluster; see WorkerReconciler."""
        self._actions.labels(self._pool, action, outcome).inc()
        self._action.labels(self._pool, action).observe(seconds)

    def healed(self, facts: int) -> None:
        """Take note of a relist that healed so many facts; see PoolLoop."""
        self._drift_healed.inc(facts)
        self._drift.set(facts)


def _observe(histogram: Histogram, pool: str, name: str, seconds: float) -> None:
    histogram.labels(pool, name).observe(seconds)
