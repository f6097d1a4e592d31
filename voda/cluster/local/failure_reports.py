"""Reads what a failed replica of the local cluster printed last, and tells users how it failed."""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from voda.cluster.local.command import path_of
from voda.cluster.local.context import JobState
from voda.cluster.local.exit_policy import end_of, is_lasting
from voda.cluster.local.outputs import read_reason
from voda.cluster.local.processes.replica_folder import Exit
from voda.domain.reasons.failures import JobFailure, ReplicaFailed
from voda.events.types import ProgramFailed
from voda.programs.last_words import LastWords

_LAST_LINES_S: Final = 5.0
"""For reading what a failed replica printed last; a job fails without it where the disk takes longer."""
_LAST_LINE: Final = 300
"""Characters of it, in the log of events."""


def report_failure(state: JobState, name: str, ended: Exit, *, fail: Callable[[JobFailure, int | None], None]) -> None:
    """Tell users how a program failed that is started again and when, and what it printed last; or let its job fail."""
    record, run_spec = state.record, state.run_spec()
    most = run_spec.policy.backoff_limit + 1 if run_spec is not None else 0
    tries, due_at = record.failures + 1 if most else 0, record.not_before

    def read(found: LastWords | None) -> None:
        said = found or LastWords()
        how = end_of(replace(ended, rank_code=said.exit_code), said, letters=_LAST_LINE)
        if is_lasting(ended, said) and record.state != "stopping" and not record.ended:
            fail(ReplicaFailed(replica=name, how=how), ended.exit_code)
            return
        state.context.tell(
            ProgramFailed(
                job_id=record.job_id,
                replica=name,
                reason=how,
                next_try=tries,
                most_tries=most,
                next_try_at=due_at,
            )
        )

    read_last_words(state, name, ended, read)


def read_last_words(state: JobState, name: str, ended: Exit, then: Callable[[LastWords | None], object]) -> None:
    """Hand on what a failed replica printed last; None where the disk takes too long."""
    folder, runs, run_spec = state.folder, {**state.record.runs, name: ended.run}, state.run_spec()
    path = path_of(state, run_spec, name) if run_spec is not None else ""
    # In a thread: a job's PATH may lead to disks that hang, too.
    state.context.in_thread(lambda: read_reason(folder, name, runs, path), then, within_s=_LAST_LINES_S)
