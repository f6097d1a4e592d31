"""`voda delete`: cancels jobs."""

from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.completion import live_jobs
from voda.cli.options import Where, asks_server

if TYPE_CHECKING:
    from voda.cli.http.client import Client

_EVERY_S = 1.0
_HELP = """
Cancel jobs: their workers are stopped, what they wrote is kept.

\b
Examples:
  voda delete resnet-7
  voda delete resnet-7 vgg16-2 --reason "wrong data" --wait
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("delete", help=_HELP)(asks_server(delete))


def delete(
    where: Where,
    jobs: Annotated[list[str], typer.Argument(help="The jobs.", autocompletion=live_jobs)],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept in the log.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Until their workers are gone.")] = False,
) -> None:
    """Cancel the jobs; a job that cannot be canceled does not spare the others."""
    from voda.cli.http.client import answered
    from voda.cli.http.retry import each

    async def cancel(client: "Client") -> None:
        deleted: list[str] = []

        async def one(job: str) -> None:
            deleted.append(await _delete(client, job, reason))

        try:
            await each(jobs, one)
        finally:
            if wait and deleted:
                await _ended(client, deleted)

    answered(where, cancel)


async def _delete(client: "Client", name: str, reason: str) -> str:
    from voda.api.schemas.jobs import JobView
    from voda.cli.http.client import decoded, path
    from voda.cli.http.retry import persistently
    from voda.cli.render.job_text import has_ended, state
    from voda.cli.render.stdout import plain

    query = {"reason": reason} if reason else None
    answer = await persistently(lambda: client.ask("DELETE", path("jobs", name), params=query))
    job = decoded(answer.body, JobView)
    print(plain(f"{job.job_id} is {state(job).lower()}" if has_ended(job) else f"{job.job_id} is being canceled"))
    return job.job_id


async def _ended(client: "Client", job_ids: list[str]) -> None:
    from voda.api.schemas.jobs import JobView
    from voda.cli.http.client import decoded, path
    from voda.cli.render.job_text import has_ended, state
    from voda.cli.watch.changes import woken

    left = list(job_ids)
    async with woken(client, every_s=_EVERY_S) as wait:
        while True:
            for job_id in tuple(left):
                job = decoded(await client.get(path("jobs", job_id)), JobView)
                if has_ended(job):
                    left.remove(job_id)
                    print(f"{job_id} is {state(job).lower()}", flush=True)
            if not left:
                return
            await wait()
