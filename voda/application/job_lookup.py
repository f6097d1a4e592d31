"""Finds a job by its id or name: in the registry of jobs or, where that has forgotten it, in the log.

Rule: an error names the closest job that there is, or where to look for it.
"""

from difflib import get_close_matches
from typing import Final

from voda.application.backend import Backend
from voda.domain.errors import NotFound
from voda.domain.job import JobSpec
from voda.projections.job_record import JobRecord
from voda.projections.job_registry import JobRegistry
from voda.timetravel.job_explanation import submission_of

_COMPARED: Final = 500
"""Jobs whose names are compared with a mistyped one: other requests wait meanwhile."""
_SUGGESTED: Final = 3


def job_of(backend: Backend, name_or_id: str) -> JobRecord:
    """Return the job with that id, else the one of that name that was submitted last.

    Raises:
        NotFound: there is none, or only the log knows it.
    """
    job_registry = backend.view.job_registry
    if (record := job_registry.find(name_or_id)) is not None:
        return record
    if job_registry.is_known(name_or_id):
        raise NotFound(
            f"job {name_or_id} ended so long ago that only the log knows of it: GET /api/v1/events?job={name_or_id}"
        )
    raise _unknown(name_or_id, job_registry)


async def spec_of(backend: Backend, name_or_id: str) -> JobSpec:
    """Return the spec of the job with that id, else of the one of that name that was submitted last.

    Raises:
        NotFound: there is none.
    """
    job_registry = backend.view.job_registry
    if (record := job_registry.find(name_or_id)) is not None:
        return record.spec
    if job_registry.is_known(name_or_id):
        return (await submission_of(backend.store, name_or_id, backend.view.position)).spec
    raise _unknown(name_or_id, job_registry)


def _unknown(named: str, job_registry: JobRegistry) -> NotFound:
    if elsewhere := job_registry.ids_named(named):
        ids = " or ".join(map(repr, sorted(elsewhere)[:_SUGGESTED]))
        return NotFound(f"job {named[:80]!r} is not known in namespace default: did you mean {ids}?")
    close = get_close_matches(named[:80], list(job_registry.jobs())[-_COMPARED:], n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`voda get --all` or GET /api/v1/jobs lists all jobs"
    return NotFound(f"job {named[:80]!r} is not known: {hint}")
