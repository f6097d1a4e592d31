"""Finds jobs and pools by their names: in the state that was folded or, where it has forgotten a job, in the log.

Rules: an error names the closest job or pool that there is, or where to look for it; a lookup changes nothing: a pool
that the log does not mention is empty, and stays unmentioned.
"""

from collections.abc import Sequence
from typing import Final

from voda.application.journal import Journal, JournalView
from voda.auth.callers import Caller
from voda.domain.errors import NotFound, closest
from voda.domain.job import JobSpec
from voda.domain.plan import Plan
from voda.domain.settings import Settings
from voda.domain.state import ClusterState
from voda.projections.jobs.names import EXACT, OF_OWNER
from voda.projections.jobs.record import JobRecord
from voda.projections.jobs.registry import JobRegistry
from voda.timetravel.job_explanation import job_named, submission_of

_COMPARED: Final = 500
"""Jobs whose names are compared with a mistyped one: other requests wait meanwhile."""
_SUGGESTED: Final = 3


def job_of(view: JournalView, named: str, caller: Caller) -> JobRecord:
    """Return the job that a text names, the caller's own first (`JobNames`); raises NotFound."""
    job_registry = view.job_registry
    if (record := job_registry.find(named, caller.user)) is not None:
        return record
    if (job_id := _forgotten(job_registry, named)) is not None:
        raise NotFound(f"job {job_id} ended so long ago that only the log knows of it: GET /api/v1/events?job={job_id}")
    raise _unknown(named, job_registry, caller)


def array_tasks(job_registry: JobRegistry, named: str, user: str) -> Sequence[JobRecord]:
    """Return the tasks of the array that a text names: of that name the user's own, submitted last; or of that id."""
    arrays = job_registry.arrays
    return arrays.tasks(arrays.find(named, user) or named)


def array_of(view: JournalView, named: str, caller: Caller) -> Sequence[JobRecord]:
    """Return the tasks of an array, at least one; raises NotFound."""
    if tasks := array_tasks(view.job_registry, named, caller.user):
        return tasks
    raise NotFound(f"array {named[:80]!r} is not known: GET /api/v1/jobs lists all jobs and their arrays")


async def spec_of(journal: Journal, named: str, caller: Caller) -> JobSpec:
    """Return the spec of the job that a text names, also of one that only the log still knows; raises NotFound."""
    job_registry = journal.view.job_registry
    if (record := job_registry.find(named, caller.user)) is not None:
        return record.spec
    if (job_id := _forgotten(job_registry, named)) is not None:
        return (await submission_of(journal.store, job_id, journal.view.position)).spec
    raise _unknown(named, job_registry, caller)


async def job_id_then(journal: Journal, named: str, caller: Caller, position: int) -> str:
    """Return the id of the job that a text meant when the log ended at a position; raises NotFound."""
    job_id = await job_named(journal.store, named, position, user=caller.user)
    if journal.view.job_registry.is_known(job_id):
        return job_id
    return (await spec_of(journal, named, caller)).job_id


def _forgotten(job_registry: JobRegistry, named: str) -> str | None:
    """Return the id that a text is, of a job that only the log still knows."""
    job_id = named.removeprefix(EXACT)
    return job_id if job_registry.is_known(job_id) and job_registry.job(job_id) is None else None


def _unknown(named: str, job_registry: JobRegistry, caller: Caller) -> NotFound:
    if tasks := array_tasks(job_registry, named, caller.user):
        last = f" to {tasks[-1].spec.job_id}" if len(tasks) > 1 else ""
        return NotFound(f"{named[:80]} is an array: name one of its tasks, {tasks[0].spec.job_id}{last}")
    if named.startswith(EXACT):
        return NotFound(f"no job has the id {named[1:80]!r}: `voda get --all` or GET /api/v1/jobs lists all jobs")
    owner, slash, name = named.rpartition(OF_OWNER)
    if slash and job_registry.find(name) is not None:
        return NotFound(f"{owner[:80]!r} has no job {name[:80]!r}: `voda get --all --user {owner[:80]}` lists theirs")
    if elsewhere := job_registry.names.elsewhere(named):
        ids = " or ".join(map(repr, sorted(elsewhere)[:_SUGGESTED]))
        return NotFound(f"job {named[:80]!r} is not known in namespace default: did you mean {ids}?")
    close = closest(named, list(job_registry.jobs())[-_COMPARED:])
    hint = f"did you mean {close!r}?" if close else "`voda get --all` or GET /api/v1/jobs lists all jobs"
    return NotFound(f"job {named[:80]!r} is not known: {hint}")


def pool_names(pools: Sequence[str], view: JournalView) -> Sequence[str]:
    """Return all pools, those that take jobs and those that the log knows, sorted."""
    return sorted({*pools, *view.cluster.pools()})


def known_pool(pools: Sequence[str], view: JournalView, name: str) -> str:
    """Return the name if there is such a pool; else NotFound names the pools that there are."""
    known = pool_names(pools, view)
    if name in known:
        return name
    hint = f" Did you mean {close!r}?" if (close := closest(name, known)) else ""
    raise NotFound(f"pool {name[:80]!r} is not known.{hint} Known: {', '.join(known)}.")


def pool_state(view: JournalView, name: str) -> ClusterState:
    """Return the live state of a pool, without estimates; O(live jobs)."""
    cluster = view.cluster
    if name in cluster.pools():
        return cluster.state(name)
    return ClusterState(
        pool=name,
        position=cluster.position,
        jobs={},
        nodes={},
        plan=Plan(pool=name),
        estimates={},
        settings=Settings(),
    )
