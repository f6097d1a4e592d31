"""`voda delete`: cancels jobs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.options import ServerOptions, command, live_jobs
from voda.domain.errors import NotFound

if TYPE_CHECKING:
    from voda.cli.http.client import Client

_EVERY_S = 1.0
_EXIT_ENDED_BEFORE = 3


@command("delete")
def delete(
    where: ServerOptions,
    jobs: Annotated[list[str], typer.Argument(help="The jobs.", autocompletion=live_jobs)],
    reason: Annotated[str, typer.Option("--reason", help="Why; the log keeps it.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until their workers are gone.")] = False,
) -> None:
    """Cancel jobs: voda stops their workers and keeps what they wrote.

    The exit status is 3 if one of them had ended before: it stays as it is.

    \b
    Examples:
      voda delete resnet-7
      voda delete resnet-7 vgg16-2 --reason "wrong data" --wait
      voda delete sweep
    """
    from voda.cli.http.client import call_server

    if not call_server(where, lambda client: _cancel(client, jobs, reason, wait)):
        raise typer.Exit(_EXIT_ENDED_BEFORE)


async def _cancel(client: "Client", jobs: list[str], reason: str, wait: bool) -> bool:
    """Cancel the jobs, and return whether none had ended; if one cannot be canceled, the others still are."""
    from voda.api.schemas import JobView
    from voda.cli.http.client import decode, resource_path
    from voda.cli.http.retry import for_each, retry_while_away
    from voda.cli.render.job_text import exactly, has_ended, state
    from voda.cli.render.terminal import note, plain

    canceled: list[str] = []
    ended: list[str] = []

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
        path, query = resource_path("jobs", name), {"reason": reason} if reason else None
        before = decode((await retry_while_away(lambda: client.ask("GET", path))).body, JobView)
        path = resource_path("jobs", exactly(before))
        if has_ended(before):
            note(f"{before.job_id} ended ({state(before).lower()}) before: nothing to delete")
            ended.append(before.job_id)
            return
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
            for job_id in tuple(left):
                job = decode(await client.get(resource_path("jobs", job_id)), JobView)
                if has_ended(job):
                    left.remove(job_id)
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
