"""What the end of a replica's program means for its job, when a restart is due, and the job's deadline. Pure.

Rules: only the launcher's end decides about an MPIJob, only the master's about a PyTorchJob that has one; a program
that others told to end did not fail; agents that meet fail together, as a launcher does with its ranks.
"""

from collections.abc import Collection
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from voda.cluster.local.command import index_of
from voda.cluster.local.folder import LocalJobRecord
from voda.cluster.local.processes.replica_folder import Exit
from voda.cluster.local.run_spec import LAUNCHER, RunSpec
from voda.domain.reasons.failures import Exited, HowEnded, KilledForMemory, NotRun, ReplicaFailed, ToldToEnd
from voda.programs.last_words import LastWords, lacks_module
from voda.programs.launchers import CANNOT_RUN

FORGIVEN_S: Final = 10.0
"""A launcher that ends so soon after a worker was killed under it did not fail by itself."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0
_LEAST_RETRYABLE: Final = 128
_LAST_LINES: Final = 5
"""Shown of a job that has failed."""


class ExitDecision(Struct, frozen=True, kw_only=True):
    """What follows from the end of one replica's program."""

    outcome: Literal["ignored", "completed", "failed", "restart", "evicted", "done"]
    """done: this replica has done its work, and the job waits for others; evicted: a restart without a failure."""
    failure: ReplicaFailed | None = None
    worker: int | None = None
    """Of the replica, where it is done or restarted; None: all workers, as a launcher or agents that meet begin anew.
    """


def decide_exit(  # noqa: PLR0913 - what ended, and how
    run_spec: RunSpec, record: LocalJobRecord, replica: str, ended: Exit, *, now: float, said: LastWords | None = None
) -> ExitDecision:
    """Return what follows from the end of a replica, which may have said something; the record is as it was before."""
    index = index_of(run_spec, record, replica)
    if record.ended or record.state != "running" or (index is None and replica != LAUNCHER) or index in record.leaving:
        return ExitDecision(outcome="ignored")
    if replica == LAUNCHER and 0 < record.forgiven_until - now <= FORGIVEN_S and not ended.problem:
        # Open MPI's mpirun even ends well when one of its daemons is killed.
        return ExitDecision(outcome="ignored")
    if run_spec.is_gang and record.generation != record.wanted and (ended.was_told or not ended.is_success):
        # voda is ending them all, and the one may have failed by the other's end.
        return ExitDecision(outcome="ignored")
    restarted = None if run_spec.is_gang else index
    if ended.was_told and not run_spec.policy.is_restartable:
        return ExitDecision(outcome="failed", failure=ReplicaFailed(replica=replica, how=ToldToEnd()))
    if ended.was_told:
        # Not by voda: a machine that shuts down tells its processes to end. Even one that ends well is not done.
        return ExitDecision(outcome="evicted", worker=restarted)
    if not ended.is_success:
        how = end_of(ended, said or LastWords(), lines=_LAST_LINES)
        is_of_resize = record.has_new_size(now) and run_spec.policy.is_restartable
        failed = ReplicaFailed(replica=replica, how=how)
        if (failure := _final(run_spec, failed, ended, record.failures, is_of_resize=is_of_resize)) is not None:
            return ExitDecision(outcome="failed", failure=failure)
        return ExitDecision(outcome="restart", worker=restarted)
    if _completes_job(run_spec, replica, unfinished_replicas(run_spec, record, replica)):
        return ExitDecision(outcome="completed")
    return ExitDecision(outcome="done", worker=index)


def unfinished_replicas(run_spec: RunSpec, record: LocalJobRecord, replica: str) -> Collection[str]:
    """Return the job's other replicas that have not ended well, also those that will be started again."""
    names = (run_spec.replica_of(index) for index in record.expected if index not in record.done)
    return sorted({*names} - {replica})


def has_done_its_work(run_spec: RunSpec | None, record: LocalJobRecord) -> bool:
    """Return whether all workers of a running job of equal workers have ended well that the plan still has."""
    is_for_all = run_spec is not None and run_spec.kind == "torch" and not run_spec.has_master
    is_running = record.state == "running" and not record.ended
    return is_for_all and is_running and bool(record.done) and record.done.issuperset(record.expected)


def deadline_at(run_spec: RunSpec, record: LocalJobRecord) -> float | None:
    """Return the instant at which a job has been active for too long; None where it has no deadline or does not run."""
    limit_s = run_spec.policy.active_deadline_s
    return None if limit_s is None or record.state != "running" or record.ended else record.resumed_at + limit_s


def pause_s(failures: int) -> float:
    """Return how long to wait before the restart after the n-th failure, seconds."""
    return min(_FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16), _LONGEST_PAUSE_S)


def restart_in_s(record: LocalJobRecord, now: float) -> float:
    """Return how long a restart still waits, seconds; no longer than its pause, should the clock have been set back."""
    left_s = record.not_before - now
    return min(left_s, pause_s(max(record.failures, record.evictions))) if left_s > 0 else 0.0


def put_off_restart(record: LocalJobRecord, now: float, *, is_failure: bool) -> None:
    """Count a failure or an eviction, and put the restart off; replicas that fail together fail once."""
    if now < record.not_before:
        return
    if is_failure and record.has_new_size(now):
        # The plans avoid the size from now on; at that which ran before, a failure counts again.
        record.not_before = now + _FIRST_PAUSE_S
        return
    if is_failure:
        record.failures += 1
    else:
        record.evictions += 1
    record.not_before = now + pause_s(record.failures if is_failure else record.evictions)


def is_lasting(ended: Exit, said: LastWords) -> bool:
    """Return whether another try would end the same, as its last words say."""
    return ended.exit_code == 1 and ended.memory_limit_bytes is None and lacks_module(said)


def end_of(ended: Exit, said: LastWords, *, lines: int = 1, letters: int | None = None) -> HowEnded:
    """Return how a program ended, with at most so many lines and letters of what it printed last."""
    text = said.text(lines)[:letters]
    if text == f"voda: {ended.problem}":
        # What kept the program from running is printed too.
        text = ""
    words: dict[str, Any] = {
        "said": text,
        "are_lines": bool(text) and lines > 1 and not said.exception,
        "hint": said.hint,
    }
    if ended.problem:
        return NotRun(problem=ended.problem, **words)
    if (limit := ended.memory_limit_bytes) is not None:
        return KilledForMemory(limit_bytes=limit, **words)
    if (rank := ended.rank_code) is not None:
        ended = Exit(run=ended.run, code=rank) if rank >= 0 else Exit(run=ended.run, code=-1, signal=-rank)
    return Exited(exit_code=ended.exit_code, signal=ended.signal, **words)


def _completes_job(run_spec: RunSpec, replica: str, unfinished: Collection[str]) -> bool:
    if run_spec.has_master:
        return run_spec.role_of(replica) == "master"
    return run_spec.kind == "mpi" or run_spec.elastic is not None or not unfinished


def _final(
    run_spec: RunSpec, failed: ReplicaFailed, ended: Exit, failures: int, *, is_of_resize: bool
) -> ReplicaFailed | None:
    """Return why the job fails with this failure; None where it does not, as where a resize is to blame."""
    if ended.exit_code in CANNOT_RUN:
        return failed
    if is_of_resize:
        return None
    policy = run_spec.policy.restart_policy.get(run_spec.role_of(failed.replica), "OnFailure")
    if policy == "Never" or (policy == "ExitCode" and ended.exit_code < _LEAST_RETRYABLE):
        return replace(failed, policy=policy)
    return replace(failed, restarts=failures) if failures >= run_spec.policy.backoff_limit else None
