"""Jobs at some position of a log: how far each is into its epoch, and on which workers.

Rule: the log's events change the same Training that the simulated cluster uses, so that a simulation can continue
from there.
"""

from collections.abc import Callable, Mapping

from voda.domain.job import JobSpec
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection
from voda.simulator.training import Training, exact_end
from voda.simulator.whatif.epoch_times import LOSSES
from voda.simulator.workload import Profile


class JobReplay(Projection):
    """The trainings of the jobs, as a log's first events leave them; `profile_of` returns a job's true speed."""

    def __init__(self, profile_of: Callable[[str], Profile]) -> None:
        self._profile_of = profile_of
        self._trainings: dict[str, Training] = {}
        self._changing: dict[str, tuple[float, Mapping[int, str]]] = {}
        """job id -> instant of its last change of workers, and the workers before it; not applied yet."""
        self._workers: dict[str, dict[int, str]] = {}

    def trainings(self, specs: Mapping[str, JobSpec], now: float) -> tuple[Training, ...]:
        """Return the live jobs with their present specs at `now`, which is not before the last event."""
        for job_id in tuple(self._changing):
            self._place_workers(job_id)
        live = [self._trainings[job_id] for job_id in specs if job_id in self._trainings]
        for training in live:
            training.respecify(specs[training.spec.job_id], now)
        return tuple(live)

    def outlived_workers(self) -> Mapping[str, tuple[int, ...]]:
        """Return job id -> workers that have not exited although their job has ended."""
        return {
            job_id: tuple(workers)
            for job_id, workers in self._workers.items()
            if workers and job_id not in self._trainings
        }

    def _change(self, job_id: str, now: float) -> dict[int, str]:
        """Return the job's workers for a change; all changes of one instant count as one."""
        workers = self._workers.setdefault(job_id, {})
        if job_id in self._changing and self._changing[job_id][0] != now:
            self._place_workers(job_id)
        self._changing.setdefault(job_id, (now, dict(workers)))
        return workers

    def _place_workers(self, job_id: str) -> None:
        """Place the job's workers anew, as the changes of one instant left them."""
        if job_id not in self._changing:
            return
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


@JobReplay.folds
def _submitted(replay: JobReplay, fact: facts.JobSubmitted, event: Event) -> None:
    job_id = fact.spec.job_id
    if job_id not in replay._workers:
        profile = replay._profile_of(job_id)
        replay._trainings[job_id] = Training(fact.spec, profile, exact_end, updated_at=event.recorded_at)
        replay._workers[job_id] = {}


@JobReplay.folds
def _started(replay: JobReplay, fact: facts.WorkerStarted, event: Event) -> None:
    replay._change(fact.job_id, event.recorded_at).update(fact.workers)


@JobReplay.folds
def _exited(replay: JobReplay, fact: facts.WorkerExited, event: Event) -> None:
    workers = replay._change(fact.job_id, event.recorded_at)
    for index in fact.workers:
        workers.pop(index, None)
    if fact.cause in LOSSES and (training := replay._trainings.get(fact.job_id)) is not None:
        training.fall_back(event.recorded_at)


@JobReplay.folds
def _progressed(replay: JobReplay, fact: facts.JobProgressed, event: Event) -> None:
    if (training := replay._trainings.get(fact.job_id)) is None:
        return
    replay._place_workers(fact.job_id)
    whole = int(fact.epochs_done)
    if whole > training.epoch:
        training.epoch = min(whole, training.profile.epochs) - 1
        training.finish_epoch(event.recorded_at)
    training.advance(event.recorded_at)
    if whole == training.epoch:
        training.fraction = fact.epochs_done - whole


@JobReplay.folds
def _ended(replay: JobReplay, fact: facts.JobEnd, event: Event) -> None:
    replay._trainings.pop(fact.job_id, None)
