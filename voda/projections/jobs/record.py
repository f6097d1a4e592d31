"""The record of one job, live or ended, as users see it.

Rule: phase, totals and starts of a live job come from the same functions as in the live cluster.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.domain.job import Job, JobSpec, MetricValue, Phase
from voda.domain.reasons.failures import ReplicaFailed
from voda.domain.reasons.outcomes import Canceled, Failed, Halted, JobReason
from voda.domain.reasons.requests import CancelCause
from voda.domain.reasons.stalls import StallReason
from voda.events import types as facts
from voda.events.records import Data
from voda.kinds.launcher import JobLauncher, launcher_of
from voda.kinds.registry import KINDS
from voda.programs.program_manifest import interpreter_of, kept_script_of
from voda.projections.jobs.changes import (
    END_PHASES,
    JobPatch,
    WorkerChanges,
    changed_job,
    charge,
    replanned_job,
    undisturbed_epoch_s,
    workers_after,
)

MOST_REPORTS: Final = 1_000
"""Of a job that can be asked for, the newest ones; the log alone has them."""
_MARK_EVERY: Final = 100
_MARKS: Final = MOST_REPORTS // _MARK_EVERY + 1
MOST_METRICS: Final = 100
MOST_METRICS_BYTES: Final = 8_192
"""Of the metrics of one report, and of the latest value of each of a job's; see `metrics_bytes`."""
_VALUE_BYTES: Final = 8


class ReportMarks(Struct, frozen=True, array_like=True):
    """Where in the log a job's reports are."""

    count: int = 0
    """Reports since its submission."""
    positions: tuple[int, ...] = ()
    """Of every hundredth report, the newest eleven."""

    def add(self, position: int) -> "ReportMarks":
        """Return the marks with one more report."""
        count, positions = self.count + 1, self.positions
        return ReportMarks(count, positions if count % _MARK_EVERY else (*positions, position)[-_MARKS:])

    @property
    def after(self) -> int:
        """Position behind which the newest `MOST_REPORTS` reports are, and few others; 0: behind the submission."""
        return self.positions[0] if len(self.positions) == _MARKS else 0


def change_within_epoch(changed_at: float, epochs_done: float, *, is_since_report: bool) -> float:
    """Return when the workers changed last where that may be within the epoch that ends now, else -inf.

    An epoch began at the last report, whatever clocks say, unless that one had a part of it done.

    Args:
        changed_at: when the workers changed last.
        epochs_done: what the last report said.
        is_since_report: whether they changed since then.
    """
    return changed_at if is_since_report or not float(epochs_done).is_integer() else -math.inf


class JobRecord(Struct, kw_only=True, omit_defaults=True):
    """One job. The registry changes it in place: read it, and hold on to its frozen parts only."""

    job: Job
    """As decisions see it while it is live, but without the manifest and without refusals."""
    submitted_position: int
    """Of the event that submitted it, which holds the manifest: `store.read(submitted_position - 1, 1)`."""
    revision: int
    """Position of the last event that changed the record."""
    submitted_bytes: int = 0
    """Of what was submitted, with its manifest; see `submitted_bytes`."""
    finished_at: float | None = None
    planned: tuple[str, ...] = ()
    """Node of each worker, by the plan in force; empty once it has ended."""
    reason: JobReason | None = None
    """Of the last decision about it; once it has ended, why it failed or was canceled."""
    cancel_reason: CancelCause | None = None
    """Why it is being canceled, or was; None: it is not."""
    launcher: JobLauncher = ""
    """What starts its processes, as the manifest says."""
    interpreter: str = ""
    """The Python that runs it, as the manifest says."""
    kept_script: str = ""
    """The file that runs in place of its script, as the manifest says; empty: none does."""
    resizes: int = 0
    """Changes from one planned size to another, each counted once all of its workers are there."""
    migrations: int = 0
    """Changes that put a worker on another node."""
    changes: WorkerChanges | None = msgspec.field(default=None, name="tenure")
    """While it is live and had workers."""
    epoch_s: float | None = None
    """Seconds of the last epoch that it timed."""
    metrics: Mapping[str, MetricValue] = {}
    """The latest value of each, within the bounds of one report."""
    reported_at: float | None = None
    reports: ReportMarks = ReportMarks()
    """Where in the log its reports are."""
    last_error: str = ""
    """Of the last action on it that failed: which, and why; empty once it succeeded, or another plan has it changed."""
    action_retry_at: float | None = None
    """When that is tried again, at the latest; None: not known."""
    folder_deleted_at: float | None = None
    """When its output and all else in its folder was deleted; None: it was not."""
    folder_deleted_by: str = ""
    """Such as `retention (30 days)`, or a user."""
    stall: StallReason | None = None
    """What it waits for and no plan can give; empty once it waits no more or has ended."""
    program_failures: int = 0
    """Times that the program of a replica failed, and was started again."""
    last_failure: ReplicaFailed | None = None
    """The last of them."""
    was_inside: bool = False
    """Whether that was one of its processes, and the replica went on."""
    next_try: int = 0
    """Number of the try that follows it, or is under way; 0: it never failed, or that is not known."""
    most_tries: int = 0
    """After so many failed tries it has failed."""
    next_try_at: float | None = None
    """When the next try follows, at the earliest; seconds since the epoch."""
    silent_since: float | None = None
    """When it was started or resized, where it has printed and reported nothing since; seconds since the epoch."""
    silent_from: int = 0
    """Workers until then; 0: it was started."""

    @property
    def spec(self) -> JobSpec:
        """The present request, without the manifest."""
        return self.job.spec

    @property
    def phase(self) -> Phase:
        return self.job.phase

    @property
    def is_live(self) -> bool:
        return self.finished_at is None

    @property
    def is_canceling(self) -> bool:
        """Whether it is live and its cancellation was requested."""
        return self.job.is_canceling and self.is_live

    @property
    def is_halted(self) -> bool:
        """Whether it is live and no plan gives it workers until it is resumed."""
        return self.job.is_halted and self.is_live

    @property
    def present_reason(self) -> JobReason | None:
        """Why it has its workers, or none: somebody has canceled or halted it, or that of the last plan."""
        if self.is_canceling and self.cancel_reason is not None:
            return Canceled(why=self.cancel_reason)
        if self.is_live and self.job.halt is not None and not self.is_canceling:
            return Halted(by=self.job.halt.by, text=self.job.halt.text)
        return self.reason

    @property
    def awaits_actions(self) -> bool:
        """Whether it is live and gets or gives up workers, and waits for nothing else."""
        return self.stall is None and self.is_live and len(self.job.workers) != len(self.planned)

    @property
    def retry_at(self) -> float | None:
        """When the cluster tries again what holds the job up, at the latest; None: nothing does, or not known."""
        return self.action_retry_at if self.last_error and self.awaits_actions else None

    @property
    def is_preempted(self) -> bool:
        """Whether it waits because a plan gave its GPUs to others."""
        return self.job.is_preempted

    def change(self, fact: JobPatch | facts.ProgramFailed | facts.JobSilent, now: float, position: int) -> bool:
        """Fold a fact about the job that is at a position of the log, and return whether it concerns the record."""
        if not self.is_live:
            return self._change_ended(fact, now)
        if isinstance(fact, facts.JobStalled):
            self.stall = fact.reason
        if isinstance(fact, facts.ProgramFailed):
            self.program_failures += fact.times_inside or 1
            self.last_failure = ReplicaFailed(replica=fact.replica, how=fact.reason)
            self.was_inside = bool(fact.times_inside)
            if fact.times_inside:
                return True
            self.next_try, self.most_tries, self.next_try_at = fact.next_try, fact.most_tries, fact.next_try_at
            return True
        if isinstance(fact, facts.JobSilent | facts.JobProgressed | facts.WorkerStarted | facts.WorkerExited):
            self._hear(fact)
        if isinstance(fact, facts.JobSilent):
            return True
        done_before = self.job.epochs_done
        self.job = changed_job(self.job, fact, now, self.planned)
        match fact:
            case facts.JobProgressed():
                self._report(fact, done_before, now, position)
            case facts.WorkerStarted():
                self._changes_at(now).start(fact.workers)
                self._count_changes()
                if len(self.job.workers) == len(self.planned):
                    self._forget_error()
            case facts.WorkerExited():
                self._changes_at(now).exit(fact.workers, fact.cause)
                self._count_changes()
            case facts.ActionFailed():
                self.last_error, self.action_retry_at = f"{fact.action}: {fact.error}", fact.retry_at
            case facts.JobCancelRequested():
                self.cancel_reason = fact.reason
            case _:
                pass
        return True

    def _hear(self, fact: Data) -> None:
        """Note whether the job is silent: whatever changes or reports is not."""
        self.silent_since, self.silent_from = None, 0
        if isinstance(fact, facts.JobSilent) and (self.reported_at or 0.0) < (fact.since or 0.0):
            self.silent_since, self.silent_from = fact.since, fact.workers_before

    def _change_ended(self, fact: Data, now: float) -> bool:
        """Charge an ended job for the GPUs that its last workers held until now."""
        if not self.job.workers or not isinstance(fact, facts.WorkerStarted | facts.WorkerExited):
            return False
        workers = workers_after(self.job, fact)
        self.job = replace(self.job, workers=workers, counted_at=now, attained_service_gpu_s=self.job.service_by(now))
        return True

    def _report(self, fact: facts.JobProgressed, done_before: float, now: float, position: int) -> None:
        changed_at = self.changes.changed_at if self.changes is not None else -math.inf
        is_new = self.reported_at is None or changed_at > self.reported_at
        changed_at = change_within_epoch(changed_at, done_before, is_since_report=is_new)
        epoch_s = undisturbed_epoch_s(fact, now, changed_at)
        if epoch_s is not None:
            self.epoch_s = epoch_s
        self.metrics = latest_metrics(self.metrics, fact.metrics)
        self.reported_at = now
        self.reports = self.reports.add(position)

    def plan(self, fact: facts.PlanAdopted, now: float) -> None:
        """Take over what a plan recorded at that instant says about the job."""
        job_id = self.spec.job_id
        self.reason = fact.reasons.get(job_id, None if job_id in fact.released else self.reason)
        if job_id in fact.placed or job_id in fact.released:
            # What failed was an action of the plan before.
            self._forget_error()
        if job_id in fact.placed:
            self.planned = fact.placed[job_id]
        elif job_id in fact.released:
            self.planned = ()
        if job_id in fact.placed or job_id in fact.released:
            self.job = replanned_job(self.job, fact)
        if self.changes is not None:
            self.changes.plan(self.planned, now)
            self._count_changes()

    def end(self, fact: facts.JobEnd, now: float) -> None:
        self.job = replace(charge(self.job, now), phase=END_PHASES[type(fact)])
        self._count_changes()
        self.finished_at, self.planned, self.changes, self.stall = now, (), None, None
        self.next_try, self.next_try_at, self.silent_since = 0, None, None
        self.reason = Canceled(why=self.cancel_reason) if self.cancel_reason is not None else None
        if not isinstance(fact, facts.JobCanceled):
            self.reason = Failed(why=fact.reason) if isinstance(fact, facts.JobFailed) and fact.reason else None

    def _forget_error(self) -> None:
        self.last_error, self.action_retry_at = "", None

    def _changes_at(self, now: float) -> WorkerChanges:
        if self.changes is None:
            self.changes = WorkerChanges(planned=len(self.planned) or None)
        self.changes.begin(now)
        return self.changes

    def _count_changes(self) -> None:
        if self.changes is not None:
            totals = self.changes.totals()
            self.resizes, self.migrations = totals.resizes, totals.migrations


def metrics_bytes(metrics: Mapping[str, object]) -> int:
    """Return the bytes of the names, in UTF-8, and of the values."""
    return sum(len(name.encode()) + _VALUE_BYTES for name in metrics)


def latest_metrics(before: Mapping[str, MetricValue], reported: Mapping[str, MetricValue]) -> Mapping[str, MetricValue]:
    """Return the latest value of each metric within the bounds of one report: those reported last stay."""
    if not reported:
        return before
    latest = {**before, **reported}
    size = metrics_bytes(latest) if len(latest) > len(before) else 0
    for name in (*(name for name in before if name not in reported), *reversed(list(reported))):
        if size <= MOST_METRICS_BYTES and len(latest) <= MOST_METRICS:
            break
        size -= metrics_bytes({name: 0.0})
        del latest[name]
    return latest


def new_record(spec: JobSpec, now: float, position: int) -> JobRecord:
    """Return the record of a job that has just been submitted."""
    job = Job(spec=replace(spec, manifest=None), submitted_at=now, counted_at=now)
    return JobRecord(
        job=job,
        submitted_position=position,
        revision=position,
        submitted_bytes=submitted_bytes(spec),
        launcher=_launcher(spec),
        interpreter=interpreter_of(spec.manifest),
        kept_script=kept_script_of(spec.manifest),
    )


def submitted_bytes(spec: JobSpec) -> int:
    """Return how many bytes a request has with its manifest, encoded; in memory it takes two to five times as much."""
    return len(msgspec.msgpack.encode(spec))


def _launcher(spec: JobSpec) -> JobLauncher:
    """Return what starts a job's processes; empty where there is no manifest, or none that this version can read."""
    kind = KINDS.get(spec.kind)
    if spec.manifest is None or kind is None:
        return ""
    try:
        return launcher_of(msgspec.convert(spec.manifest, kind))
    except msgspec.ValidationError:
        return ""
