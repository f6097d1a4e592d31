"""The cluster at a moment as records, and the difference of two moments.

Rule: a record is made anew only where what it shows has changed, so the difference is found by identity, and a moment
costs little more than what is otherwise in it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from voda.api.presenters.gpus import gpus_of
from voda.api.presenters.jobs import share_of
from voda.api.presenters.pools import gpus_by_node, node_of, pool_of
from voda.domain.job import Job
from voda.domain.plan import ExpectedTimes
from voda.domain.reasons.outcomes import Halted, JobReason
from voda.domain.state import ClusterState
from voda.events.text.reasons import job_text
from voda.events.text.stalls import sick_gpus_text, stall_text
from voda.projections.cluster.live_cluster import LiveCluster
from voda.wire.base import instant, view_of
from voda.wire.jobs import ForecastView
from voda.wire.moments import ChangesView, MomentJobView, MomentView
from voda.wire.pools import NodeView, PoolView

_NO_FORECAST: Final = ForecastView()
_NO_GPUS: Final[Mapping[int, str]] = {}
_SHOWN_WITHIN_S: Final = 30.0
K = TypeVar("K")
V = TypeVar("V")


class Moment(NamedTuple):
    """The cluster at one moment."""

    position: int
    at: float
    pools: Mapping[str, PoolView]
    nodes: Mapping[str, NodeView]
    jobs: Mapping[str, MomentJobView]


class Forecasts(NamedTuple):
    """What is expected of jobs, and when that was said."""

    of: Mapping[str, ExpectedTimes] = {}
    made_at: float | None = None


NO_FORECASTS: Final = Forecasts()


class Moments:
    """Makes one moment after the other, each with the records of the one before where they are still right."""

    def __init__(self, job_gpus: Callable[[str], Mapping[int, str]] = lambda _node: _NO_GPUS) -> None:
        self._job_gpus = job_gpus
        self._jobs: dict[str, tuple[tuple[object, ...], MomentJobView]] = {}
        self._nodes: dict[str, tuple[tuple[object, ...], NodeView]] = {}
        self._pools: dict[str, PoolView] = {}

    def moment(self, cluster: LiveCluster, at: float, forecasts: Forecasts = NO_FORECASTS) -> Moment:
        """Return the cluster as it is now, which is the instant `at`."""
        jobs: dict[str, tuple[tuple[object, ...], MomentJobView]] = {}
        nodes: dict[str, tuple[tuple[object, ...], NodeView]] = {}
        pools: dict[str, PoolView] = {}
        for name in cluster.pools():
            state = cluster.state(name)
            pool = pool_of(state)
            pools[name] = before if (before := self._pools.get(name)) == pool else pool
            for job_id, job in state.jobs.items():
                jobs[job_id] = self._job(state, job, forecasts)
            holds = gpus_by_node(state.jobs.values())
            for node in state.nodes:
                nodes[node] = self._node(state, cluster, node, holds.get(node, {}))
        self._jobs, self._nodes, self._pools = jobs, nodes, pools
        return Moment(
            position=cluster.position,
            at=at,
            pools=pools,
            nodes={name: view for name, (_, view) in nodes.items()},
            jobs={job_id: view for job_id, (_, view) in jobs.items()},
        )

    def _job(self, state: ClusterState, job: Job, forecasts: Forecasts) -> tuple[tuple[object, ...], MomentJobView]:
        job_id = job.spec.job_id
        plan = state.plan
        expected = forecasts.of.get(job_id)
        made_from = (
            job,
            plan.placement.get(job_id),
            plan.guaranteed.get(job_id),
            plan.reasons.get(job_id),
            state.cells is None,
            expected,
        )
        known = self._jobs.get(job_id)
        if known is not None and _is_same(known[0][:-1], made_from[:-1]) and _is_near(known[0][-1], expected):
            return known
        return made_from, job_of(job, state, forecasts)

    def _node(
        self, state: ClusterState, cluster: LiveCluster, name: str, holds: Mapping[str, int]
    ) -> tuple[tuple[object, ...], NodeView]:
        account, gpus = cluster.shares.nodes.get(name), self._job_gpus(name)
        silent = state.silent_since.get(name)
        until = (silent, state.is_mostly_silent, state.settings.node_grace_s) if silent is not None else None
        staying = [job_id for job_id in holds if state.jobs[job_id].is_fixed]
        made_from = (state.nodes[name], account, state.drains.get(name), holds, gpus, until, staying)
        known = self._nodes.get(name)
        if known is not None and known[0] == made_from:
            return known
        devices = gpus_of(account, gpus) if account is not None else ()
        return made_from, node_of(state, state.nodes[name], holds, devices)


def moment_view(moment: Moment, end: int) -> MomentView:
    """Return a moment as the API shows it; the log ends at `end`."""
    return MomentView(
        position=moment.position,
        at=instant(moment.at),
        end=end,
        pools=tuple(moment.pools.values()),
        nodes=tuple(moment.nodes.values()),
        jobs=tuple(moment.jobs.values()),
    )


def changes_view(before: Moment, after: Moment, end: int) -> ChangesView:
    """Return what is otherwise in the later of two moments of one `Moments`; the log ends at `end`."""
    return ChangesView(
        position=after.position,
        at=instant(after.at),
        end=end,
        pools=_changed(before.pools, after.pools),
        nodes=_changed(before.nodes, after.nodes),
        jobs=_changed(before.jobs, after.jobs),
        gone_nodes=tuple(before.nodes.keys() - after.nodes.keys()),
        gone_jobs=tuple(before.jobs.keys() - after.jobs.keys()),
    )


def job_of(job: Job, state: ClusterState, forecasts: Forecasts) -> MomentJobView:
    """Return a live job as a picture of the cluster shows it."""
    spec = job.spec
    nodes = defaultdict[str, int](int)
    for node in job.workers.values():
        nodes[node] += 1
    planned = state.plan.placement.get(spec.job_id, ())
    reason = _reason(job, state)
    return view_of(
        MomentJobView,
        job,
        spec,
        name=spec.name or spec.job_id,
        state=_state(job),
        requested_replicas=spec.requested,
        share=share_of(spec),
        planned_replicas=len(planned),
        guaranteed_replicas=None if state.cells is None else len(state.plan.guaranteed.get(spec.job_id, ())),
        nodes=dict(nodes),
        reason=reason,
        message="; ".join(filter(None, (job_text(reason), _obstacle(job, len(planned))))),
        started_at=job.first_started_at,
        forecast=_forecast(job, forecasts),
    )


def _reason(job: Job, state: ClusterState) -> JobReason | None:
    if job.halt is not None and not job.is_canceling:
        return Halted(by=job.halt.by, text=job.halt.text)
    return state.plan.reasons.get(job.spec.job_id)


def _obstacle(job: Job, planned: int) -> str:
    if job.is_canceling or job.is_halted:
        return ""
    if job.obstacle is not None:
        return stall_text(job.obstacle.reason)
    return job.last_error if job.replicas != planned else sick_gpus_text(job)


def _state(job: Job) -> str:
    if job.is_canceling:
        return "Canceling"
    if job.is_halted:
        return "Halted"
    return "Preempted" if job.is_preempted else job.phase.value


def _forecast(job: Job, forecasts: Forecasts) -> ForecastView:
    expected = forecasts.of.get(job.spec.job_id)
    if expected is None:
        return _NO_FORECAST
    waits = not (job.workers or job.is_canceling or job.is_halted)
    return ForecastView(
        position=expected.position or None if waits else None,
        starts_at=instant(expected.starts_at) if waits else None,
        finishes_at=instant(expected.finishes_at) if not job.is_halted else None,
        made_at=instant(forecasts.made_at),
    )


def _changed(before: Mapping[K, V], after: Mapping[K, V]) -> tuple[V, ...]:
    return tuple(view for key, view in after.items() if before.get(key) is not view)


def _is_near(shown: object, expected: ExpectedTimes | None) -> bool:
    """Return whether what is shown of a forecast is right to the half minute: each forecast differs a little."""
    if not (isinstance(shown, ExpectedTimes) and expected is not None):
        return shown is expected
    pairs = ((shown.starts_at, expected.starts_at), (shown.finishes_at, expected.finishes_at))
    return shown.position == expected.position and all(
        one is other or (one is not None and other is not None and abs(one - other) < _SHOWN_WITHIN_S)
        for one, other in pairs
    )


def _is_same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return all(this is that for this, that in zip(one, other, strict=True))
