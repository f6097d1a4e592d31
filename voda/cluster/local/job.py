"""One job of the local cluster: records what is asked of it, then does what is missing.

Its parts call each other in one direction: the job its device claims and its replicas, the claims the replicas; all
share one state, and the replicas report exits, which `exit_policy` judges. Rule: `settle` acts on the difference
between record and processes, whatever woke it, so it may be called at any time; nothing waits.
"""

import errno
import logging
from collections.abc import Collection, Sequence, Set
from functools import partial
from typing import Final, Literal, assert_never

from msgspec.structs import replace

from voda.cluster.local.context import FIND_S, TRY_AGAIN_S, JobState, LocalContext, Timer
from voda.cluster.local.device_holders import DeviceHolders
from voda.cluster.local.exit_policy import (
    deadline_at,
    decide_exit,
    end_of,
    has_done_its_work,
    put_off_restart,
    restart_in_s,
    unfinished_replicas,
)
from voda.cluster.local.failure_reports import read_last_words, report_failure
from voda.cluster.local.folder import JobFolder, LocalJobRecord
from voda.cluster.local.job_replicas import JobReplicas
from voda.cluster.local.processes.marked import MarkedProcess
from voda.cluster.local.processes.replica_folder import Exit
from voda.domain.errors import ActionRefused
from voda.domain.plan import StartJob, StopReason
from voda.domain.reasons.failures import JobFailure, PastDeadline
from voda.domain.reasons.nodes import Said
from voda.events.text.failures import end_text
from voda.events.types import JobCompleted, JobFailed, WorkerStarted
from voda.programs.last_words import LastWords
from voda.untrusted_files import UnsafeFile

_LEFT_AGAIN_S: Final = 0.05
"""No event shows that the last process of a launcher's worker ended; all other ends are reported at once."""
_PERMANENT: Final = frozenset(
    {errno.EINVAL, errno.ERANGE, errno.EPERM, errno.EDOM, errno.EOVERFLOW, errno.EOPNOTSUPP, errno.E2BIG}
)
"""What the kernel says of a limit or a process that it will refuse at the next try too."""
_KILL_SHIMS_S: Final = 4.0
"""A shim that has not killed its program by then may be stopped itself, where it runs as the same user."""
_log = logging.getLogger(__name__)


class LocalJob:
    """A job's record and its processes."""

    def __init__(self, context: LocalContext, folder: JobFolder, record: LocalJobRecord) -> None:
        self.record = record
        self._context = context
        self.state = JobState(context, folder, record)
        self.replicas = JobReplicas(self.state, on_exit=self._on_exit, settle=self.settle)
        self._claims = DeviceHolders(self.state, self.replicas, settle=self.settle)
        self._next_look = Timer(self.state.later, self.settle)
        self._deadline = Timer(self.state.later, self._check_deadline)
        self._kill_shims = Timer(self.state.later, partial(_kill_processes, self.state))
        self._is_failing = False
        """Its last lines are being read; nothing is done about it meanwhile."""

    # ---- what is asked

    def place(self, workers: Set[int], *, planned: int, start: StartJob | None = None) -> None:
        """Let the job have these workers: start it, or grow or shrink it.

        Args:
            workers: their indices, for now.
            planned: its size by the plan, more than the highest of them.
            start: which GPU a job may share that has no workers; None: any.

        Raises:
            ActionRefused: it is ending or has ended, or there is no room; nothing has changed then.
            ClusterUnavailable: the record cannot be written; nothing has changed then.
        """
        record = self.record
        if record.ended or record.state in ("halting", "stopping"):
            raise ActionRefused(f"job {record.job_id}: is ending; it can start again once its workers are gone")
        run_spec = self._context.run_spec(record.job_id)
        new = sorted(workers - record.devices.keys())
        surplus = record.devices.keys() - workers - record.leaving
        if surplus:
            record.resize(planned, self._context.now())
            self._claims.terminate(surplus)
        elif not new and record.size != planned:
            record.resize(planned, self._context.now())
            self.state.save()
        if new:
            try:
                self._claims.take(run_spec, new, planned, start)
            except UnsafeFile as error:
                self.fail(Said(text=f"its folder cannot be used: {error}"))
                return
            self._context.tell(WorkerStarted(job_id=record.job_id, workers=dict.fromkeys(new, self._context.node)))
            self._check_deadline()
        self.settle()

    def halt(self, killed: Sequence[MarkedProcess] | None = None) -> None:
        """Take all workers away; the folder stays, so that the job can go on.

        Args:
            killed: the processes of the job, where their time is over.
        """
        if self.record.state == "running" and not self.record.ended:
            self.record.evictions = 0
            self._end("halting")
        if killed is not None and self.record.state == "halting":
            self.state.folder.kill(killed)
            self.settle()

    def stop(self, reason: StopReason, *, is_kill: bool = False) -> None:
        """End the job for good, and forget it once its processes are gone; `is_kill`: their shims kill them at once, or
        are killed themselves a little later.
        """
        record = self.record
        if record.succeeded_at and reason != "canceled":
            # It completed, and the other replicas are about to end by themselves.
            if record.state != "stopping":
                record.state = "stopping"
                self.state.save()
                self.settle()
        elif record.state != "stopping" or record.succeeded_at:
            self._end("stopping")
        if is_kill:
            self.replicas.kill()
            self._kill_shims.set(_KILL_SHIMS_S)

    def _end(self, state: Literal["halting", "stopping"]) -> None:
        # Written together with the workers that leave: a crash between two files would leave a job that ends and
        # keeps its workers.
        self.record.state = state
        self._terminate_all()

    # ---- what is there

    @property
    def is_forgotten(self) -> bool:
        """Whether the job is stopped and all its processes are gone."""
        return not self.state.is_open

    def adopt(self) -> None:
        """Take over what an earlier voda left: running processes, and exits that it did not deal with.

        Raises:
            UnsafeFile: something else lies where voda reads.
            OSError: the system refuses; another try goes on from here.
        """
        record = self.record
        if record.boot_id != self._context.boot_id:
            self._survive_boot()
        elif record.leaving:
            # What the earlier voda did of it after it was recorded is not known.
            self._claims.terminate(record.leaving)
        self.replicas.note_adopted()
        for name in tuple(record.runs):
            self.replicas.inspect(name)
        if record.ended and record.wanted:
            left_s = record.succeeded_at + record.grace_s - self._context.now()
            self.state.later(min(left_s, record.grace_s), partial(_end_unfinished, self))
        elif record.wanted and record.state == "running":
            # A crash may have come between the record and the files.
            self._claims.refresh_files()
        self._check_deadline()
        self.settle()

    def _survive_boot(self) -> None:
        """Let all workers go, as no process outlives its machine's boot; the plan will start the job again."""
        record = self.record
        for name, run in tuple(record.runs.items()):
            ended = self.state.folder.replica(name).exit(run)
            if ended is not None and not ended.was_told and record.judged.get(name) != run:
                self._on_exit(name, ended)
        record.judged |= record.runs
        record.evictions = 0
        if has_done_its_work(self.state.run_spec(), record):
            self._complete()
        if record.state == "running" and not record.ended:
            record.state = "halting"
            self._claims.note_node_loss()
        # Written with all else: a voda that dies before it finds the same again.
        record.boot_id = self._context.boot_id
        self._claims.terminate(record.devices)

    def close(self) -> None:
        """Stop watching; the processes go on."""
        self.state.is_open = False
        self.replicas.close()

    # ---- what is missing is done

    def settle(self) -> None:
        if not self.state.is_open or self._is_failing:
            return
        try:
            self._settle()
        except UnsafeFile as error:
            if not self.record.ended:
                self.fail(Said(text=f"its folder cannot be used: {error}"))
        except OSError as error:
            if error.errno in _PERMANENT and self.record.state == "running" and not self.record.ended:
                what = f"{error.filename or 'a process'}: {error.strerror}"
                self.fail(Said(text=f"this machine refuses what it asks for: {what}"))
                return
            _log.warning("job_id=%s cannot go on: %s; tried again in %g s", self.record.job_id, error, TRY_AGAIN_S)
            self.state.later(TRY_AGAIN_S, self.settle)

    def _settle(self) -> None:
        record = self.record
        if has_done_its_work(self.state.run_spec(), record):
            # As after a shrink: no worker is left that it waits for.
            self._complete()
            return
        if record.state in ("halting", "stopping") and record.wanted and not record.succeeded_at:
            self._claims.terminate(record.wanted)
        if record.state == "running" and not record.ended:
            self._start_missing()
        elif record.ended and not self.replicas and record.wanted:
            self._claims.terminate(record.wanted)
        elif record.leaving or not record.succeeded_at:
            self.replicas.stop()
        if record.leaving:
            self._claims.release_vacant()
        if record.leaving:
            self._next_look.set(_LEFT_AGAIN_S)
        if not record.devices:
            self._rest()

    def _start_missing(self) -> None:
        record, run_spec = self.record, self.state.run_spec()
        if not self.state.is_account_known or run_spec is None:
            return
        if run_spec.is_gang and not self.replicas.renew_generation():
            return
        names = [name for name in self.state.replicas_to_run() if self.replicas.can_start(name)]
        if names and (pause_s := restart_in_s(record, self._context.now())):
            self._next_look.set(pause_s)
            return
        for name in names:
            # An exit that is learned of on the way may end the job.
            if not record.ended and (problem := self.replicas.start(name, run_spec)):
                self.fail(Said(text=problem))

    def _rest(self) -> None:
        record = self.record
        # Without workers it only waits, and its deadline waits with it.
        if record.state == "halting" or (record.state == "running" and not record.ended):
            record.state = "halted"
            self.state.save()
        elif record.state == "stopping" and not self.replicas:
            self.state.folder.forget()
            self.close()

    # ---- what follows from an exit

    def _on_exit(self, name: str, ended: Exit, said: LastWords | None = None) -> None:
        """Record how the program of a replica ended and what follows, before anything of it is reported.

        Args:
            name: of the replica.
            ended: how.
            said: its last words, of a failure; None until they are read.
        """
        record, run_spec = self.record, self.state.run_spec()
        if self._is_failing:
            return
        if run_spec is None:
            record.judged[name] = ended.run
            self.state.save()
            return
        decision = decide_exit(run_spec, record, name, ended, now=self._context.now(), said=said)
        if decision.outcome == "failed" and said is None:
            self._read_last_lines(name, ended)
            return
        record.judged[name] = ended.run
        match decision.outcome:
            case "completed":
                self._complete(unfinished_replicas(run_spec, record, name))
            case "failed":
                assert decision.failure is not None, "a job fails for a reason"
                self.fail(decision.failure, ended.exit_code)
            case "restart":
                self._restart(name, decision.worker, ended, "failed")
            case "evicted":
                self._restart(name, decision.worker, ended, "evicted")
            case "done" | "ignored":
                record.done.update(() if decision.worker is None else (decision.worker,))
                self.state.save()
            case _:
                assert_never(decision.outcome)

    def _read_last_lines(self, name: str, ended: Exit) -> None:
        self._is_failing = True

        def read(found: LastWords | None) -> None:
            self._is_failing, said = False, found or LastWords()
            if self.state.is_open:
                self._on_exit(name, replace(ended, rank_code=said.exit_code), said)
                self.settle()

        read_last_words(self.state, name, ended, read)

    def _restart(self, name: str, worker: int | None, ended: Exit, cause: Literal["failed", "evicted"]) -> None:
        """Have a replica started again after a pause, by a plan: in the pause it holds no devices, and where it is the
        launcher or one of agents that meet, no worker does. One of these that others told to end is started again here.
        """
        record = self.record
        put_off_restart(record, self._context.now(), is_failure=cause == "failed")
        record.generation = ()
        gone = [worker] if worker is not None else record.wanted if cause == "failed" else ()
        self._claims.note_cause(gone, cause, ended.exit_code)
        if worker is None and gone:
            self._claims.terminate(gone)
        else:
            record.leaving.update(gone)
            self.state.save()
        if cause == "failed":
            report_failure(self.state, name, ended, fail=self.fail)
        what = end_text(end_of(ended, LastWords())) if cause == "failed" else "was told to end, not by voda"
        _log.warning("job_id=%s %s %s; it is started again, failures=%d", record.job_id, name, what, record.failures)

    def _complete(self, unfinished: Collection[str] = ()) -> None:
        record = self.record
        record.ended = "completed"
        record.succeeded_at = self._context.now()
        self.state.save(durably=True)
        self._context.tell(JobCompleted(job_id=record.job_id))
        if record.grace_s > 0 and any(self.replicas.is_running(name) for name in unfinished):
            # The others are about to end by themselves, perhaps still writing what they learned.
            self.state.later(record.grace_s, partial(_end_unfinished, self))
        else:
            self._terminate_all()

    def fail(self, reason: JobFailure, exit_code: int | None = None) -> None:
        """End the job, which has not ended yet, as failed."""
        record = self.record
        record.ended, record.reason = "failed", reason
        self._claims.note_cause(record.devices, "failed", exit_code)
        self.state.save(durably=True)
        self._context.tell(JobFailed(job_id=record.job_id, reason=reason))
        self._terminate_all()

    def _terminate_all(self) -> None:
        if self.state.is_open:
            self._claims.terminate(self.record.devices)
            self.settle()

    def _check_deadline(self) -> None:
        """Fail the job if it has been active for too long, else look again when it may have been."""
        run_spec = self.state.run_spec()
        if run_spec is None or (due_at := deadline_at(run_spec, self.record)) is None:
            return
        # It may have been halted meanwhile and count anew, or its timer may come a moment early.
        if (left_s := due_at - self._context.now()) > 0:
            self._deadline.set(left_s)
        else:
            self.fail(PastDeadline(limit_s=run_spec.policy.active_deadline_s or 0.0))


def _kill_processes(state: JobState) -> None:
    state.context.in_thread(state.folder.find_processes, lambda found: state.folder.kill(found or ()), within_s=FIND_S)


def _end_unfinished(job: LocalJob) -> None:
    """End what has not ended by itself in the grace since its job has completed."""
    folder = job.state.folder

    def kill(found: Sequence[MarkedProcess] | None) -> None:
        # An agent that waits for those that are gone heeds no SIGTERM for minutes (seen in torch 2.13).
        folder.kill(found or ())
        job._terminate_all()

    if job.record.generation:
        job.state.context.in_thread(folder.find_processes, kill, within_s=FIND_S)
    else:
        job._terminate_all()
