"""Halts a job until it is resumed, and lets it go on: its place in the queue and its files stay.

Rule: only what would take effect is recorded; who halted a job may be named by the reason, and is always by the event.
"""

from voda.application.job_rules import refuse_stop
from voda.application.journal import Journal
from voda.auth.callers import Caller
from voda.auth.write_quota import payer
from voda.domain.errors import WrongState
from voda.domain.reasons.requests import Requested
from voda.events.types import AnyFact, JobHaltRequested, JobResumeRequested
from voda.projections.jobs.record import JobRecord


async def halt(journal: Journal, record: JobRecord, caller: Caller, *, reason: str = "") -> None:
    """Take a live job's workers away until it is resumed; a halted one stays as it is.

    Raises:
        WrongState: the job has ended, is being canceled, or is not restartable and has begun.
    """
    _refuse_ending(record, "halted")
    if not record.is_halted:
        refuse_stop(record, "halted")
        fact = JobHaltRequested(job_id=record.spec.job_id, reason=Requested(by=caller.user or "nobody", text=reason))
        await _record(journal, record, fact, caller, "halted")


async def resume(journal: Journal, record: JobRecord, caller: Caller) -> None:
    """Let plans give a halted job workers again; one that is not halted stays as it is.

    Raises:
        WrongState: the job has ended, or is being canceled.
    """
    _refuse_ending(record, "resumed")
    if record.is_halted:
        await _record(journal, record, JobResumeRequested(job_id=record.spec.job_id), caller, "resumed")


async def _record(journal: Journal, record: JobRecord, fact: AnyFact, caller: Caller, done: str) -> None:
    position = await journal.record(fact, actor=caller.user, payer=payer(caller, record.spec.user))
    # An end that was recorded first leaves the request without effect.
    if record.revision < position:
        _refuse_ending(record, done)


def _refuse_ending(record: JobRecord, done: str) -> None:
    if not record.is_live:
        raise WrongState(
            f"job {record.spec.job_id} is {record.phase.value}: only live jobs can be {done}; rerun runs it again"
        )
    if record.is_canceling:
        raise WrongState(f"job {record.spec.job_id} is being canceled: it cannot be {done}")
