"""Jobs by their id or name.

Rule: what the roster has forgotten, the log still knows.
"""

from difflib import get_close_matches
from typing import Final

from voda.application.backend import Backend
from voda.domain.errors import NotFound
from voda.domain.job import JobSpec
from voda.projections.job_registry import JobRegistry
from voda.timetravel.job_explanation import submission_of

_COMPARED: Final = 500
"""Jobs whose names are compared with a mistyped one: others wait for the answer meanwhile."""

_NAMED: Final = 3


async def spec_of(backend: Backend, name_or_id: str) -> JobSpec:
    """Return the spec of the job with that id, else of the one of that name that was submitted last.

    Raises:
        NotFound: there is none; the message names the closest.
    """
    roster = backend.view.roster
    if (record := roster.find(name_or_id)) is not None:
        return record.spec
    if roster.is_known(name_or_id):
        return (await submission_of(backend.store, name_or_id, backend.view.position)).spec
    raise unknown(name_or_id, roster)


def unknown(named: str, roster: JobRegistry) -> NotFound:
    """Return the error of a job that is not there.

    It names those of that name in other namespaces, else the closest, if there is one among the latest.
    """
    if elsewhere := roster.ids_named(named):
        ids = " or ".join(map(repr, sorted(elsewhere)[:_NAMED]))
        return NotFound(f"job {named[:80]!r} is not known in namespace default: did you mean {ids}?")
    close = get_close_matches(named[:80], list(roster.jobs())[-_COMPARED:], n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`voda get --all` or GET /api/v1/jobs lists all jobs"
    return NotFound(f"job {named[:80]!r} is not known: {hint}")
