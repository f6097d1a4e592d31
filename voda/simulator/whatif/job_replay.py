"""Jobs as they stand at some position of a log: how far each is into its epoch, and on which workers.

Rule: what the log says happened is carried out on the same Training that the simulated cluster uses, so that a
simulation can go on from there.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from voda.domain.job import JobSpec
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
from voda.simulator.profiles.base import Profile
from voda.simulator.training import Training, exact_end

_LOSSES: Final = frozenset({"failed", "evicted", "node_lost"})


class JobReplay:
    """Projection of a log's first events onto trainings.

    Args:
        profile_of: job id -> the job's true speed.
    """

    def __init__(self, profile_of: Callable[[str], Profile]) -> None:
        self._profile_of = profile_of
        self._trainings: dict[str, Training] = {}
        self._changing: dict[str, tuple[float, Mapping[int, str]]] = {}
        """job id -> instant of its last change of workers, and those before it; not carried out yet."""
        self._workers: dict[str, dict[int, str]] = {}

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        if (fold := _FOLDS.get(type(event.data))) is not None:
            fold(self, event.data, event.recorded_at)

    def trainings(self, specs: Mapping[str, JobSpec], now: float) -> tuple[Training, ...]:
        """Return the live jobs at `now`.

        Args:
            specs: of the live jobs, as they are by now.
            now: not before the last event.
        """
        for job_id in tuple(self._changing):
            self._carry_out(job_id)
        live = [self._trainings[job_id] for job_id in specs if job_id in self._trainings]
        for training in live:
            training.respecify(specs[training.spec.job_id], now)
        return tuple(live)

    def strays(self) -> Mapping[str, tuple[int, ...]]:
        """Return job id -> workers that are still there although their job has ended."""
        return {
            job_id: tuple(workers)
            for job_id, workers in self._workers.items()
            if workers and job_id not in self._trainings
        }

    def _change(self, job_id: str, now: float) -> dict[int, str]:
        """Return the job's workers, to be changed; those of one instant change together."""
        workers = self._workers.setdefault(job_id, {})
        if job_id in self._changing and self._changing[job_id][0] != now:
            self._carry_out(job_id)
        self._changing.setdefault(job_id, (now, dict(workers)))
        return workers

    def _carry_out(self, job_id: str) -> None:
        at, before = self._changing.pop(job_id)
        if (training := self._trainings.get(job_id)) is None:
            return
        after = dict(self._workers[job_id])
        if after != before:
            costs = training.profile.costs
            cost_s = costs.start_s if not before else costs.resize_s
            if len(before) == len(after):
                cost_s = costs.migrate_s
            training.place(after, at, cost_s=cost_s)

    def _settle(self, job_id: str) -> None:
        if job_id in self._changing:
            self._carry_out(job_id)


def _submitted(rehearsal: JobReplay, fact: JobSubmitted, now: float) -> None:
    job_id = fact.spec.job_id
    if job_id not in rehearsal._workers:
        profile = rehearsal._profile_of(job_id)
        rehearsal._trainings[job_id] = Training(fact.spec, profile, exact_end, updated_at=now)
        rehearsal._workers[job_id] = {}


def _started(rehearsal: JobReplay, fact: WorkerStarted, now: float) -> None:
    rehearsal._change(fact.job_id, now).update(fact.workers)


def _exited(rehearsal: JobReplay, fact: WorkerExited, now: float) -> None:
    workers = rehearsal._change(fact.job_id, now)
    for index in fact.workers:
        workers.pop(index, None)
    if fact.cause in _LOSSES and (training := rehearsal._trainings.get(fact.job_id)) is not None:
        training.fall_back(now)


def _progressed(rehearsal: JobReplay, fact: JobProgressed, now: float) -> None:
    if (training := rehearsal._trainings.get(fact.job_id)) is None:
        return
    rehearsal._settle(fact.job_id)
    whole = int(fact.epochs_done)
    if whole > training.epoch:
        training.epoch = min(whole, training.profile.epochs) - 1
        training.finish_epoch(now)
    training.fraction = fact.epochs_done - whole


def _ended(rehearsal: JobReplay, fact: JobCompleted | JobFailed | JobCanceled, _now: float) -> None:
    rehearsal._trainings.pop(fact.job_id, None)


_FOLDS: Final[Mapping[type, Callable[[JobReplay, Any, float], None]]] = {
    JobSubmitted: _submitted,
    WorkerStarted: _started,
    WorkerExited: _exited,
    JobProgressed: _progressed,
    JobCompleted: _ended,
    JobFailed: _ended,
    JobCanceled: _ended,
}
