"""Reads gauges at the moment somebody asks: jobs, GPUs, plans and the log from the view, who leads, what is mirrored.

Rule: O(live jobs + nodes) per look, and nothing is kept from one look to the next.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from voda.application.journal import Journal
from voda.domain.job import Job, Phase
from voda.domain.node import Node
from voda.domain.plan import Plan

_LIVE = (Phase.SUBMITTED, Phase.WAITING, Phase.RUNNING)


def leadership_gauges(*, is_leading: bool, epoch: int) -> Iterator[GaugeMetricFamily]:
    """Yield who leads; `epoch` is 0 while this replica does not."""
    yield _gauge("leader", "1 while this replica leads, else 0.", value=is_leading)
    yield _gauge("leader_epoch", "Epoch of this replica's leadership; 0 without.", value=epoch)


def kubernetes_gauges(mirrored: Mapping[str, int], unadopted: Mapping[str, int]) -> Iterator[GaugeMetricFamily]:
    """Yield how many objects are mirrored, by collection, and how many labelled ones are no jobs, by state."""
    yield _counted("mirrored_objects", "Objects mirrored here.", "collection", mirrored)
    yield _counted("objects_unadopted", "Labelled objects that are no jobs of voda's.", "state", unadopted)


class StateGauges(Collector):
    """Reads the gauges of pools off the view of a journal; `not_ready` returns why the service is not, or nothing."""

    def __init__(self, journal: Journal, pools: Sequence[str], not_ready: Callable[[], str]) -> None:
        self._journal = journal
        self._pools = pools
        self._not_ready = not_ready
        self.lag_events = 0
        """Events that the log had and the view had not, when it was last measured."""
        self.lag_s = 0.0
        """Age of the oldest of them."""

    def collect(self) -> Iterator[Metric]:
        yield from self._service()
        now, families = self._journal.clock.now(), _Families()
        live = self._journal.view.cluster
        for pool in self._pools:
            state = live.state(pool)
            jobs = tuple(state.jobs.values())
            families.add_jobs(pool, jobs, now)
            families.add_gpus(pool, tuple(state.nodes.values()), jobs)
            families.mostly_silent.add_metric([pool], state.is_mostly_silent)
            families.add_drift(pool, state.plan, state.jobs)
            families.add_plan(pool, state.plan, state.settings.ratelimit_s)
        yield from families.all

    def describe(self) -> Iterator[Metric]:
        """Name the gauges without a look at the view."""
        yield from _Families().all

    def _service(self) -> Iterator[Metric]:
        view = self._journal.view
        yield _gauge("ready", "1 when the service is ready, 0 when not.", value=not self._not_ready())
        yield _gauge("log_position", "Position up to which the log is folded.", value=view.position)
        yield _gauge("projection_lag_events", "Events appended, but not folded yet.", value=self.lag_events)
        yield _gauge("projection_lag_seconds", "Age of the oldest event not folded yet.", value=self.lag_s)
        made_at = math.nan if view.forecast_at is None else view.forecast_at
        yield _gauge("forecast_timestamp_seconds", "When the forecasts were made; NaN before.", value=made_at)


class _Families:
    """The gauges that have labels, filled pool by pool."""

    def __init__(self) -> None:
        self.all: list[GaugeMetricFamily] = []
        self.jobs = self._family("jobs", "Live jobs, by phase.", "pool", "phase")
        self.ready = self._family(
            "jobs_ready", "Live jobs that are not canceled, halted or waiting for other jobs.", "pool"
        )
        self.preempted = self._family("jobs_preempted", "Jobs that ran before and wait again.", "pool")
        self.spanning = self._family("jobs_spanning", "Jobs whose workers sit on more than one node.", "pool")
        self.oldest = self._family(
            "queue_oldest_wait_seconds", "How long the job without workers that has waited longest has.", "pool"
        )
        self.workers = self._family("workers", "Workers observed.", "pool")
        self.planned = self._family("workers_planned", "Workers by the plan in force.", "pool")
        self.drift = self._family(
            "drift_workers", "Workers planned but not there (missing), or there but not planned.", "pool", "kind"
        )
        self.gpus = self._family("gpus", "GPUs of all nodes, by state; the states add up.", "pool", "state")
        self.fragmented = self._family(
            "gpus_fragmented", "Idle GPUs on nodes that hold no worker of any waiting job.", "pool"
        )
        self.node_gpus = self._family("node_gpus", "GPUs of a node, by state.", "pool", "node", "state")
        self.node_ready = self._family(
            "node_ready", "1 when a node is ready, not cordoned and not draining.", "pool", "node"
        )
        self.mostly_silent = self._family(
            "nodes_mostly_silent",
            "1 while more than half of a pool's nodes are silent, or say too few GPUs: nothing moves for it.",
            "pool",
        )
        self.plan = self._family("plan_number", "Number of the plan in force.", "pool")
        self.plan_at = self._family("plan_timestamp_seconds", "When the plan in force was adopted; 0 before.", "pool")
        self.ratelimit = self._family(
            "ratelimit_seconds", "Least time from a plan that interrupts jobs to the next plan.", "pool"
        )
        self.policy = self._family("policy_info", "1; how a pool is decided.", "pool", "policy", "placer")

    def add_jobs(self, pool: str, jobs: Sequence[Job], now: float) -> None:
        phases = Counter(job.phase for job in jobs)
        for phase in _LIVE:
            self.jobs.add_metric([pool, phase], phases[phase])
        self.ready.add_metric([pool], sum(map(_is_ready, jobs)))
        self.preempted.add_metric(
            [pool], sum(job.phase is Phase.WAITING and job.first_started_at is not None for job in jobs)
        )
        self.spanning.add_metric([pool], sum(len(set(job.workers.values())) > 1 for job in jobs))
        since = (job.submitted_at if job.last_halted_at is None else job.last_halted_at for job in jobs if _waits(job))
        self.oldest.add_metric([pool], max(0.0, now - min(since, default=now)))
        self.workers.add_metric([pool], sum(job.replicas for job in jobs))

    def add_gpus(self, pool: str, nodes: Sequence[Node], jobs: Sequence[Job]) -> None:
        used = Counter[str]()
        for job in jobs:
            for name, workers in Counter(job.workers.values()).items():
                used[name] += workers * job.spec.gpus_per_replica
        total = Counter[str]()
        for node in nodes:
            states = _states(node, used[node.name])
            total.update(states)
            for state, gpus in states.items():
                self.node_gpus.add_metric([pool, node.name, state], gpus)
            self.node_ready.add_metric(
                [pool, node.name], node.is_ready and node.is_schedulable and not node.is_draining
            )
        for state in ("allocated", "idle", "foreign", "unavailable"):
            self.gpus.add_metric([pool, state], total[state])
        waiting = (job.spec.gpus_per_replica for job in jobs if job.spec.share is None and _waits(job))
        least = min(waiting, default=0)
        idle = (_states(node, used[node.name])["idle"] for node in nodes)
        self.fragmented.add_metric([pool], sum(gpus for gpus in idle if gpus < least))

    def add_drift(self, pool: str, plan: Plan, jobs: Mapping[str, Job]) -> None:
        missing = unplanned = planned = 0
        for job_id, job in jobs.items():
            planned_nodes = enumerate(plan.placement.get(job_id, ()))
            wanted = {index: node for index, node in planned_nodes if index not in job.done}
            planned += len(wanted)
            there = sum(job.workers.get(index) == node for index, node in wanted.items())
            missing += len(wanted) - there
            unplanned += job.replicas - there
        self.planned.add_metric([pool], planned)
        self.drift.add_metric([pool, "missing"], missing)
        self.drift.add_metric([pool, "unplanned"], unplanned)

    def add_plan(self, pool: str, plan: Plan, ratelimit_s: float) -> None:
        self.plan.add_metric([pool], plan.number)
        self.plan_at.add_metric([pool], plan.decided_at)
        self.ratelimit.add_metric([pool], ratelimit_s)
        self.policy.add_metric([pool, plan.policy, plan.placer], 1)

    def _family(self, name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
        family = _gauge(name, help_text, labels)
        self.all.append(family)
        return family


def _is_ready(job: Job) -> bool:
    return not (job.is_canceling or job.is_halted or job.waits_for)


def _waits(job: Job) -> bool:
    return not job.workers and _is_ready(job)


def _states(node: Node, used: int) -> Mapping[str, int]:
    """Return the GPUs of a node by state; the states add up to all it has, with those that its workers hold."""
    gpus = max(node.gpus, used)
    foreign = min(node.foreign_gpus, gpus - used)
    rest = gpus - used - foreign
    is_usable = node.is_ready and node.is_schedulable and not node.is_draining
    return {
        "allocated": used,
        "foreign": foreign,
        "idle": rest if is_usable else 0,
        "unavailable": 0 if is_usable else rest,
    }


def _gauge(name: str, help_text: str, labels: Sequence[str] = (), *, value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"voda_{name}", help_text, value=value, labels=None if value is not None else labels)


def _counted(name: str, meaning: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = _gauge(name, meaning, (label,))
    for value, count in values.items():
        family.add_metric([value], count)
    return family
