"""Says when a bare name means a job of another user: a command that only shows it notes whose it is, and one that
changes it asks an admin first.

Rule: `OWNER/NAME` and `@ID` are exact, and nobody is asked; where nobody can answer, the command is refused.
"""

import re
import sys
from typing import Final

import click

from voda.auth.callers import Caller
from voda.cli.http.client import Client, HttpCall, decode, resource_path
from voda.cli.render.terminal import note, plain
from voda.cli.watch.lists import fetch_jobs
from voda.domain.errors import InvalidInput, NotAllowed, NotFound
from voda.projections.jobs.names import EXACT, OF_OWNER
from voda.wire.jobs import JobView

_LOOKED_AT: Final = 100
"""Jobs of the caller, the newest first."""
_NAMED: Final = 3
"""Jobs of the caller that the note of another user's job names."""


def note_owner(client: Client, named: str) -> None:
    """Note whose job a bare name means, where it is another user's, and which jobs of the caller are called alike."""
    if _is_exact(named):
        return
    try:
        job = decode(client.get(resource_path("jobs", named)), JobView)
    except NotFound:
        # It may be an array; otherwise the command itself says so.
        return
    caller = decode(client.get("/whoami"), Caller)
    if not job.user or job.user == caller.user or caller.found_by == "no tokens":
        return
    # A program gets the next free name where its own is taken: train-2.
    alike = re.compile(rf"{re.escape(named)}-[0-9]+")
    found = fetch_jobs(client, {"user": caller.user, "sort": "-submitted_at"}, limit=_LOOKED_AT)
    own = [each.job_id for each in found.items if alike.fullmatch(each.job_id)][:_NAMED]
    yours = f"yours: {', '.join(own)}" if own else "you have no job of that name"
    note(f"{job.job_id} is {job.user}'s; {yours}")


def _is_exact(named: str) -> bool:
    return named.startswith(EXACT) or OF_OWNER in named


def is_answered() -> bool:
    """Return whether somebody can answer a question."""
    return sys.stdin.isatty()


class ChangeConfirmation:
    """One command's look at the jobs that it is about to change.

    Args:
        client: of the server.
        verb: what the command does, such as `halt`.
        is_sure: whether nobody is to be asked.
    """

    def __init__(self, client: Client, verb: str, *, is_sure: bool) -> None:
        self._client = client
        self._verb = verb
        self._is_sure = is_sure
        self._caller: Caller | None = None

    def job(self, named: str) -> JobView:
        """Return the job that a text names, once it is clear that it is meant.

        Raises:
            InvalidInput: it is another user's, and nobody is here to be asked.
            NotAllowed: it is another user's, and was not meant.
        """
        job = decode(self._client.ask_repeatedly(HttpCall(path=resource_path("jobs", named))).body, JobView)
        self.refuse_unmeant(named, job.user, what=f"job {job.job_id}", exact=f"{EXACT}{job.job_id}")
        return job

    def refuse_unmeant(self, named: str, owner: str, *, what: str, exact: str) -> None:
        """Ask where a bare name means a job or array of somebody else; raises as `job` does."""
        if self._is_sure or not owner or _is_exact(named):
            return
        caller = self._caller = self._caller or decode(self._client.get("/whoami"), Caller)
        # Others are refused by the server; where it asks nobody who they are, all jobs are everybody's.
        if caller.role != "admin" or caller.user == owner or caller.found_by == "no tokens":
            return
        if not is_answered():
            raise InvalidInput(
                f"{what} is {owner}'s, and you have none of that name: to {self._verb} it, name it"
                f" {owner}{OF_OWNER}{named} or {exact}, or give --yes"
            )
        if not click.confirm(plain(f"{what} is {owner}'s. {self._verb.capitalize()} it?"), err=True):
            raise NotAllowed(f"{what} stays as it is")
