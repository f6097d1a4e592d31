"""`voda delete`: cancels jobs, by their names or chosen by what they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import click

from voda.cli.command_group import command
from voda.cli.completion import complete_pools, live_jobs
from voda.cli.options import JOB_HELP, SelectorOption, ServerOptions
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.cli.http.client import Client
    from voda.wire.jobs import JobView

_EXIT_NOT_WANTED = 1
_EXIT_ENDED_BEFORE = 3
_NAMED = 8
"""Jobs that the question names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChoice:
    every: Annotated[bool, Option("--all", "-a", help="All live jobs: your own, or an admin's: everybody's.")] = False
    phase: Annotated[list[str] | None, Option("--phase", help="Live jobs in this STATE; repeatable.")] = None
    user: Annotated[str, Option("--user", "-u", help="Live jobs of this user.")] = ""
    pool: Annotated[str, Option("--pool", help="Live jobs of this pool.", autocompletion=complete_pools)] = ""
    selector: SelectorOption = ""


@command("delete", aliases=("cancel",))
def delete(  # noqa: PLR0913 - a command's options are its parameters
    where: ServerOptions,
    choice: JobChoice,
    jobs: Annotated[list[str] | None, Argument(help=JOB_HELP, autocompletion=live_jobs)] = None,
    reason: Annotated[str, Option("--reason", help="Why; the log keeps it.")] = "",
    yes: Annotated[
        bool,
        Option("--yes", "-y", help="Do not ask before jobs that were chosen, or are another user's, are canceled."),
    ] = (False),
    wait: Annotated[bool, Option("--wait", help="Wait until their workers are gone.")] = False,
    now: Annotated[
        bool,
        Option("--now", help="Kill them, without time for a checkpoint, also those that are canceled; for admins."),
    ] = False,
) -> None:
    """Cancel jobs: voda stops their workers and keeps what they wrote.

    Without names, the options choose live jobs, and all of them must match. The
    exit status is 3 if a job had ended before: it stays as it is.

    \b
    Examples:
      voda delete resnet-7
      voda delete resnet-7 vgg16-2 --reason "wrong data" --wait
      voda delete sweep
      voda delete --all --phase waiting
      voda delete -l sweep=lr,keep!=yes --yes
      voda delete resnet-7 --now
    """
    from voda.cli.http.client import call_server
    from voda.cli.http.confirmation import is_answered

    if bool(jobs) == (choice != JobChoice()):
        raise InvalidInput("expected the names of jobs, or one of --all, --phase, --user, --pool and -l to choose them")
    if not jobs and not yes and not is_answered():
        raise InvalidInput("nobody is here to be asked which jobs to cancel: give --yes, or name them")
    status = call_server(
        where, lambda client: _delete(client, jobs or _chosen(choice), reason, yes=yes, wait=wait, now=now)
    )
    if status:
        raise click.exceptions.Exit(status)


def _chosen(choice: JobChoice) -> dict[str, str | list[str]]:
    """Return the filters of GET /jobs that an option gives."""
    phases = [word.capitalize() for word in choice.phase or ()] or ["live"]
    filters = {"user": choice.user, "pool": choice.pool, "selector": choice.selector}
    return {"phase": phases, **{name: value for name, value in filters.items() if value}}


def _delete(  # noqa: PLR0913 - the command's options
    client: "Client",
    jobs: Sequence[str] | dict[str, str | list[str]],
    reason: str,
    *,
    yes: bool,
    wait: bool,
    now: bool,
) -> int:
    """Cancel the jobs of these names, or those that match the filters, and return the exit status."""
    from voda.cli.render.job_text import exactly
    from voda.cli.render.terminal import note
    from voda.cli.watch.batch_cancel import BatchCancel

    if isinstance(jobs, dict):
        found = _matching(client, jobs, now=now)
        if not found:
            note("no live job of yours matches: nothing to delete")
            return _EXIT_ENDED_BEFORE
        if not yes and not _is_wanted(found):
            note("nothing was canceled")
            return _EXIT_NOT_WANTED
        jobs = [exactly(job) for job in found]
    return 0 if BatchCancel(client, reason, is_sure=yes, is_kill=now).run(jobs, waits=wait) else _EXIT_ENDED_BEFORE


def _matching(client: "Client", filters: dict[str, str | list[str]], *, now: bool) -> Sequence["JobView"]:
    """Return the live jobs that match and that the caller may cancel."""
    from voda.auth.callers import Caller
    from voda.cli.http.client import decode
    from voda.cli.render.job_text import has_ended
    from voda.cli.watch.lists import fetch_jobs

    caller = decode(client.get("/whoami"), Caller)
    found = (fetch_jobs(client, filters, limit=0)).items
    is_ours = caller.role == "admin" or "user" in filters
    live = [job for job in found if not has_ended(job) and (now or not job.is_canceling)]
    return [job for job in live if is_ours or job.user == caller.user]


def _is_wanted(found: Sequence["JobView"]) -> bool:
    from voda.cli.render.terminal import plain
    from voda.text import counted

    named = ", ".join(job.job_id for job in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return click.confirm(plain(f"Cancel {counted(len(found), 'job')} ({named}{more})?"), err=True)
