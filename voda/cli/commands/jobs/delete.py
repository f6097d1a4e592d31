"""`voda delete`: cancels jobs, by their names or chosen by what they are."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.options import SelectorOption, ServerOptions, command, complete_pools, live_jobs
from voda.domain.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from voda.api.schemas import JobView
    from voda.cli.http.client import Client

_EVERY_S = 1.0
_EXIT_NOT_WANTED = 1
_EXIT_ENDED_BEFORE = 3
_NAMED = 8
"""Jobs that the question names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChoice:
    every: Annotated[bool, typer.Option("--all", "-a", help="All live jobs: your own, or an admin's: everybody's.")] = (
        False
    )
    phase: Annotated[list[str] | None, typer.Option("--phase", help="Live jobs in this STATE; repeatable.")] = None
    user: Annotated[str, typer.Option("--user", "-u", help="Live jobs of this user.")] = ""
    pool: Annotated[str, typer.Option("--pool", help="Live jobs of this pool.", autocompletion=complete_pools)] = ""
    selector: SelectorOption = ""


@command("delete", aliases=("cancel",))
def delete(  # noqa: PLR0913 - a command's options are its parameters
    where: ServerOptions,
    choice: JobChoice,
    jobs: Annotated[list[str] | None, typer.Argument(help="The jobs.", autocompletion=live_jobs)] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; the log keeps it.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before jobs that were chosen are canceled.")] = (
        False
    ),
    wait: Annotated[bool, typer.Option("--wait", help="Wait until their workers are gone.")] = False,
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
    """
    from voda.cli.http.client import call_server

    if bool(jobs) == (choice != JobChoice()):
        raise InvalidInput("expected the names of jobs, or one of --all, --phase, --user, --pool and -l to choose them")
    if not jobs and not yes and not _is_answered():
        raise InvalidInput("nobody is here to be asked which jobs to cancel: give --yes, or name them")
    status = call_server(where, lambda client: _delete(client, jobs or _chosen(choice), reason, yes=yes, wait=wait))
    if status:
        raise typer.Exit(status)


def _chosen(choice: JobChoice) -> dict[str, str | list[str]]:
    """Return the filters of GET /jobs that an option gives."""
    phases = [word.capitalize() for word in choice.phase or ()] or ["live"]
    filters = {"user": choice.user, "pool": choice.pool, "selector": choice.selector}
    return {"phase": phases, **{name: value for name, value in filters.items() if value}}


async def _delete(
    client: "Client", jobs: Sequence[str] | dict[str, str | list[str]], reason: str, *, yes: bool, wait: bool
) -> int:
    """Cancel the jobs of these names, or those that match the filters, and return the exit status."""
    from voda.cli.render.job_text import exactly
    from voda.cli.render.terminal import note

    if isinstance(jobs, dict):
        found = await _matching(client, jobs)
        if not found:
            note("no live job of yours matches: nothing to delete")
            return _EXIT_ENDED_BEFORE
        if not yes and not _is_wanted(found):
            note("nothing was canceled")
            return _EXIT_NOT_WANTED
        jobs = [exactly(job) for job in found]
    return 0 if await _cancel(client, jobs, reason, wait) else _EXIT_ENDED_BEFORE


async def _matching(client: "Client", filters: dict[str, str | list[str]]) -> Sequence["JobView"]:
    """Return the live jobs that match and that the caller may cancel."""
    from voda.auth.callers import Caller
    from voda.cli.http.client import decode
    from voda.cli.render.job_text import has_ended
    from voda.cli.watch.lists import fetch_jobs

    caller = decode(await client.get("/whoami"), Caller)
    found = (await fetch_jobs(client, filters, limit=0)).items
    is_ours = caller.role == "admin" or "user" in filters
    return [job for job in found if not (has_ended(job) or job.is_canceling) and (is_ours or job.user == caller.user)]


def _is_answered() -> bool:
    """Return whether somebody can answer a question."""
    return sys.stdin.isatty()


def _is_wanted(found: Sequence["JobView"]) -> bool:
    from voda.cli.render.terminal import plain
    from voda.text import counted

    named = ", ".join(job.job_id for job in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return typer.confirm(plain(f"Cancel {counted(len(found), 'job')} ({named}{more})?"), err=True)


async def _cancel(client: "Client", jobs: Sequence[str], reason: str, wait: bool) -> bool:
    """Cancel the jobs, and return whether none had ended; if one cannot be canceled, the others still are."""
    from voda.api.schemas import JobView
    from voda.cli.http.client import decode, resource_path
    from voda.cli.http.retry import for_each, retry_while_away
    from voda.cli.render.job_text import exactly, has_ended, state
    from voda.cli.render.terminal import note, plain

    canceled: list[str] = []
    ended: list[str] = []
    query = {"reason": reason} if reason else None

    async def cancel(name: str) -> None:
        try:
            await cancel_job(name)
        except NotFound:
            tasks = await _cancel_array(client, name, reason)
            if tasks is None:
                raise
            canceled.extend(tasks)
            if not tasks:
                ended.append(name)

    async def cancel_job(name: str) -> None:
        before = decode((await retry_while_away(lambda: client.ask("GET", resource_path("jobs", name)))).body, JobView)
        if has_ended(before):
            note(f"{before.job_id} ended ({state(before).lower()}) before: nothing to delete")
            ended.append(before.job_id)
            return
        path = resource_path("jobs", exactly(before))
        answer = await retry_while_away(lambda: client.ask("DELETE", path, params=query))
        job = decode(answer.body, JobView)
        print(plain(f"{job.job_id} is {state(job).lower()}" if has_ended(job) else f"{job.job_id} is being canceled"))
        canceled.append(exactly(job))

    try:
        await for_each(jobs, cancel)
    finally:
        if wait and canceled:
            await _wait_for_end(client, canceled)
    return not ended


async def _wait_for_end(client: "Client", left: list[str]) -> None:
    from voda.api.schemas import JobView
    from voda.cli.http.client import decode, resource_path
    from voda.cli.render.job_text import has_ended, state
    from voda.cli.watch.refresh import wake_on_change

    async with wake_on_change(client, every_s=_EVERY_S) as wait:
        while True:
            for name in tuple(left):
                job = decode(await client.get(resource_path("jobs", name)), JobView)
                if has_ended(job):
                    left.remove(name)
                    print(f"{job.job_id} is {state(job).lower()}", flush=True)
            if not left:
                return
            await wait()


async def _cancel_array(client: "Client", name: str, reason: str) -> Sequence[str] | None:
    """Cancel all live tasks of an array together, and return them; None where there is no array of that name."""
    from voda.api.schemas import ArrayView
    from voda.cli.http.client import decode, resource_path
    from voda.cli.http.retry import retry_while_away
    from voda.cli.render.arrays import array_name, states
    from voda.cli.render.job_text import exactly, has_ended
    from voda.cli.render.terminal import note
    from voda.cli.watch.lists import fetch_array, fetch_jobs
    from voda.text import counted

    try:
        before = await fetch_array(client, name)
    except NotFound:
        return None
    if before.finished_at is not None:
        note(f"{array_name(before)} ended ({states(before)}) before: nothing to delete")
        return []
    path, query = resource_path("arrays", f"@{before.array_id}"), {"reason": reason} if reason else None
    found = await fetch_jobs(client, {"array": f"@{before.array_id}"}, limit=0)
    answer = await retry_while_away(lambda: client.ask("DELETE", path, params=query))
    live = [exactly(job) for job in found.items if not has_ended(job)]
    print(f"{array_name(decode(answer.body, ArrayView))}: {counted(len(live), 'task')} being canceled")
    return live
