"""What the jobs' own reports teach: how they scale, how long they still need, what a restart costs them.

A new job starts with the history of its category (the submitted name before its suffix); its own measurements
outweigh it. Rules: an estimate is a function of the events folded, the job and the settings, not of who asked when;
memory is O(live jobs + categories); whatever is reported, nothing here raises or becomes NaN.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.domain.estimate import Estimate
from voda.domain.job import Job, JobSpec
from voda.domain.state import Settings
from voda.events.envelope import Event
from voda.events.types import (
    JobCanceled,
    JobCompleted,
    JobFailed,
    JobProgressed,
    JobSubmitted,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.estimates import CategoryHistory, estimate_scaling, is_material
from voda.projections.restarts import UndisturbedSpan
from voda.projections.running_means import EpochMeans, EpochPace, RunningMean
from voda.projections.scaling import Scaling

_LEAST_EPOCH_S: Final = 1e-6
_MOST_EPOCH_S: Final = 1e9
"""A report outside of this is an error of the reporter: no epoch takes less than a microsecond or 30 years."""
_LEAST_SAMPLES_PER_S: Final = 1e-9
_MOST_SAMPLES_PER_S: Final = 1e15
_MOST_WORKERS: Final = 100_000
_MOST_EPOCHS: Final = 10**15
"""So that products stay finite."""


class Accuracy(NamedTuple):
    """How well the work of a category's finished jobs was predicted when they were submitted."""

    jobs: int
    """Finished jobs that had a prediction."""
    mean_error: float
    """Mean of |predicted - measured| / measured, of an epoch's time on one replica."""


class CategoryMeasurements(Struct, kw_only=True):
    """What is known of all jobs of a kind."""

    epochs: EpochMeans = msgspec.field(default_factory=EpochMeans)
    restart_s: RunningMean = msgspec.field(default_factory=RunningMean)
    error: RunningMean = msgspec.field(default_factory=RunningMean)


class JobMeasurements(Struct, kw_only=True):
    """What is known of one live job."""

    category: str
    predicted_e1: float | None
    """Seconds of an epoch on one replica, as believed when it was submitted."""
    epochs: EpochMeans = msgspec.field(default_factory=EpochMeans)
    pace: EpochPace = msgspec.field(default_factory=EpochPace)
    stretch: UndisturbedSpan = msgspec.field(default_factory=UndisturbedSpan)


Known = TypeVar("Known", JobMeasurements, CategoryMeasurements)
_State = tuple[dict[str, JobMeasurements], dict[str, CategoryMeasurements]]


class _Estimate:
    """The last answer about a job, and what it was an answer to. Not part of the state."""

    __slots__ = ("asked", "epochs_done", "estimate", "scaling", "settings", "spec")

    def __init__(self, spec: JobSpec, scaling: Scaling) -> None:
        self.spec = spec
        self.scaling = self.asked = scaling
        self.estimate: Estimate | None = None
        self.epochs_done = 0.0
        self.settings: Settings | None = None


class Learning:
    """The projection behind `ClusterState.estimates`."""

    FORMAT: ClassVar[str] = "learning-1"

    def __init__(self) -> None:
        self._tracks: dict[str, JobMeasurements] = {}
        self._categories: dict[str, CategoryMeasurements] = {}
        self._forget_answers()

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        if (fold := _FOLDS.get(type(event.data))) is not None:
            fold(self, event.data, event.recorded_at)

    def estimate(self, job: Job, settings: Settings) -> Estimate:
        """Return what is believed of the job's future; the same object while nothing changed.

        Args:
            job: as the log shows it now.
            settings: what is assumed where nothing was measured.
        """
        spec = job.spec
        belief = self._beliefs.get(spec.job_id)
        if (
            belief is not None
            and (known := belief.estimate) is not None
            and belief.epochs_done == job.epochs_done
            and belief.spec is spec
            and belief.settings is settings
        ):
            return known
        return self._answer(belief or _Estimate(spec, self._scaling(spec)), job, settings)

    def stretch(self, job_id: str) -> UndisturbedSpan | None:
        """Return a live job's running time since its last report; read-only."""
        track = self._tracks.get(job_id)
        return track.stretch if track else None

    def changed_materially(self) -> bool:
        """Return whether some job that was asked about is believed to be another by now, by a tenth or more.

        It stays so until the job is asked about again, or ends.
        """
        while self._stale:
            job_id = self._stale.pop()
            belief = self._beliefs[job_id]
            belief.scaling = self._scaling(belief.spec)
            (self._moved.add if is_material(belief.asked, belief.scaling) else self._moved.discard)(job_id)
        return bool(self._moved)

    def accuracy(self) -> Mapping[str, Accuracy]:
        """Return how good the predictions were, by category; only categories with a predicted, finished job."""
        return {
            name: Accuracy(category.error.count, category.error.mean)
            for name, category in sorted(self._categories.items())
            if category.error.count
        }

    def dump(self) -> bytes:
        """Return the whole state; equal states give equal bytes."""
        return msgspec.msgpack.encode((_ordered(self._tracks), _ordered(self._categories)))

    def load(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        self._tracks, self._categories = msgspec.msgpack.decode(state, type=_State)
        self._forget_answers()

    def _forget_answers(self) -> None:
        self._histories: dict[str, CategoryHistory] = {}
        self._beliefs: dict[str, _Estimate] = {}
        self._stale: set[str] = set()
        """Jobs asked about whose measurements settled anew since."""
        self._moved: set[str] = set()
        """Jobs asked about that are materially different since."""
        self._members: dict[str, set[str]] = {}
        for job_id, track in self._tracks.items():
            self._members.setdefault(track.category, set()).add(job_id)

    def _answer(self, belief: _Estimate, job: Job, settings: Settings) -> Estimate:
        spec = job.spec
        track = self._tracks.get(spec.job_id)
        if spec.job_id in self._stale or belief.spec is not spec:
            belief.scaling = self._scaling(spec)
        category = track.category if track else spec.history_category
        restart_s = self._categories[category].restart_s if category in self._categories else RunningMean()
        span_penalty = self._history(category).span_penalty
        estimate = Estimate(
            speedup=belief.scaling.speedup,
            remaining_s=_remaining_s(job, belief.scaling.e1),
            resize_cost_s=restart_s.settled if restart_s.count else settings.resize_cost_s,
            span_penalty=settings.span_penalty if span_penalty is None else span_penalty,
            is_assumed=belief.scaling.is_assumed,
        )
        if track:
            belief.spec, belief.settings, belief.epochs_done = spec, settings, job.epochs_done
            belief.asked, belief.estimate = belief.scaling, estimate
            self._beliefs[spec.job_id] = belief
            self._stale.discard(spec.job_id)
            self._moved.discard(spec.job_id)
        return estimate

    def _scaling(self, spec: JobSpec) -> Scaling:
        if (track := self._tracks.get(spec.job_id)) is None:
            return self._history(spec.history_category).scaling(spec.max_replicas)
        scaling = estimate_scaling(track.epochs, self._history(track.category), spec.max_replicas)
        return replace(scaling, e1=scaling.e1 * track.pace.settled)

    def _history(self, category: str) -> CategoryHistory:
        if (history := self._histories.get(category)) is None:
            known = self._categories.get(category)
            history = CategoryHistory(known.epochs if known else EpochMeans())
            if known:
                self._histories[category] = history
        return history

    def _settled(self, job_ids: Iterable[str]) -> None:
        """Let the answers about these jobs be thought over again."""
        for job_id in job_ids:
            if (belief := self._beliefs.get(job_id)) is not None:
                belief.estimate = None
                self._stale.add(job_id)


def _ordered(kept: Mapping[str, Known]) -> Mapping[str, Known]:
    """Order has no meaning here, so it must make no difference to the bytes."""
    return {name: replace(one, epochs=one.epochs.ordered()) for name, one in sorted(kept.items())}


def _remaining_s(job: Job, e1: float) -> float:
    if not job.spec.epochs:
        return math.inf
    left = max(0.0, min(job.spec.epochs, _MOST_EPOCHS) - max(0.0, job.epochs_done))
    return left * e1 if left else 0.0


def _submitted(learning: Learning, fact: JobSubmitted, _now: float) -> None:
    job_id = fact.spec.job_id
    if job_id in learning._tracks:
        return
    category = fact.spec.history_category
    e1 = learning._history(category).scaling(1).e1
    learning._tracks[job_id] = JobMeasurements(category=category, predicted_e1=e1 if e1 < math.inf else None)
    learning._categories.setdefault(category, CategoryMeasurements())
    learning._members.setdefault(category, set()).add(job_id)


def _started(learning: Learning, fact: WorkerStarted, now: float) -> None:
    if (track := learning._tracks.get(fact.job_id)) is not None:
        track.stretch.start(fact.workers, now)


def _exited(learning: Learning, fact: WorkerExited, now: float) -> None:
    if (track := learning._tracks.get(fact.job_id)) is not None:
        track.stretch.exit(fact.workers, now, is_migration=fact.cause == "migrated")


def _progressed(learning: Learning, fact: JobProgressed, now: float) -> None:
    if (track := learning._tracks.get(fact.job_id)) is None:
        return
    workers, epoch_s, stretch = fact.workers, fact.epoch_s, track.stretch
    if epoch_s is not None and _LEAST_EPOCH_S <= epoch_s <= _MOST_EPOCH_S and 0 < workers <= _MOST_WORKERS:
        category, is_spanning = track.category, stretch.is_spanning
        samples_per_s = fact.samples_per_s
        if samples_per_s is not None and _LEAST_SAMPLES_PER_S <= samples_per_s <= _MOST_SAMPLES_PER_S:
            epoch_s, has_moved = track.pace.even_out(epoch_s, samples_per_s)
            epoch_s = min(max(epoch_s, _LEAST_EPOCH_S), _MOST_EPOCH_S)
            if has_moved:
                learning._settled((fact.job_id,))
        if learning._categories[category].epochs.add(workers, epoch_s, is_spanning=is_spanning):
            learning._histories.pop(category, None)
            learning._settled(learning._members[category])
        if track.epochs.add(workers, epoch_s, is_spanning=is_spanning):
            learning._settled((fact.job_id,))
    stretch.report(fact.epochs_done, workers, now)
    if stretch.sample and (cost_s := stretch.judged(track.epochs, track.pace.latest)) is not None:
        _restart_cost(learning, track.category, cost_s)


def _restart_cost(learning: Learning, category: str, cost_s: float) -> None:
    if learning._categories[category].restart_s.add(cost_s):
        for job_id in learning._members[category]:
            if (belief := learning._beliefs.get(job_id)) is not None:
                belief.estimate = None


def _completed(learning: Learning, fact: JobCompleted, _now: float) -> None:
    if (track := _ended(learning, fact, _now)) is None or track.predicted_e1 is None:
        return
    if track.epochs.points():
        e1 = estimate_scaling(track.epochs, learning._history(track.category), 1).e1
        learning._categories[track.category].error.add(abs(track.predicted_e1 - e1) / e1)


def _ended(learning: Learning, fact: JobCompleted | JobFailed | JobCanceled, _now: float) -> JobMeasurements | None:
    job_id = fact.job_id
    if (track := learning._tracks.pop(job_id, None)) is not None:
        learning._members[track.category].discard(job_id)
        learning._beliefs.pop(job_id, None)
        learning._stale.discard(job_id)
        learning._moved.discard(job_id)
    return track


_FOLDS: Final[Mapping[type, Callable[[Learning, Any, float], object]]] = {
    JobSubmitted: _submitted,
    JobProgressed: _progressed,
    WorkerStarted: _started,
    WorkerExited: _exited,
    JobCompleted: _completed,
    JobFailed: _ended,
    JobCanceled: _ended,
}
