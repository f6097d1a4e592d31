"""Jobs by their id or name.

Rule: what the roster has forgotten, the log still knows.
"""

from difflib import get_close_matches

from voda.api.backend import Backend
from voda.domain.errors import NotFound
from voda.domain.job import JobSpec
from voda.timetravel.witness import submission_of


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
    close = get_close_matches(name_or_id[:80], roster.jobs(), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise NotFound(f"job {name_or_id[:80]!r} is not known.{hint}")
