"""Finds what a path names.

Rule: whoever names something that is not there learns what that may be due to.
"""

from aiohttp import web

from voda.api.schemas.service import Caller
from voda.application.backend import Backend
from voda.application.job_lookup import unknown
from voda.domain.errors import NotAllowed, NotFound
from voda.domain.job import JobSpec
from voda.projections.records import JobRecord


def job_of(request: web.Request, backend: Backend) -> JobRecord:
    """Return the job that the path's {job_id} names: by its id, or by the name of the latest job.

    Raises:
        NotFound: there is none.
    """
    named = request.match_info["job_id"]
    roster = backend.view.roster
    if (record := roster.find(named)) is not None:
        return record
    if roster.is_known(named):
        raise NotFound(f"job {named} ended so long ago that only the log knows of it: GET /api/v1/events?job={named}")
    raise unknown(named, roster)


def is_own(spec: JobSpec, who: Caller) -> bool:
    """Return whether what only a job's owner may do or see is for this caller."""
    return who.role == "admin" or (who.role == "user" and spec.user == who.user)


def refuse_foreign(spec: JobSpec, who: Caller, *, what: str) -> None:
    """Refuse what only the job's owner may do.

    Args:
        spec: of the job.
        who: asks.
        what: they ask for, such as "delete it".

    Raises:
        NotAllowed: the job is somebody else's.
    """
    if not is_own(spec, who):
        raise NotAllowed(f"job {spec.job_id} belongs to {spec.user or 'nobody'}: only they and admins may {what}")
