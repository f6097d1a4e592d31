"""`voda describe`: everything about one job."""

from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.options import Output, OutputOption, ServerOptions, all_jobs, command

if TYPE_CHECKING:
    from voda.cli.http.client import Client


@command("describe", aliases=("status",))
def describe(
    where: ServerOptions,
    job: Annotated[str, typer.Argument(help="The job.", autocompletion=all_jobs)],
    output: OutputOption = "table",
) -> None:
    """Show everything about a job: its workers and why it has them, progress,
    forecast, recent decisions and events, and where its output is.

    \b
    Examples:
      voda describe resnet-7
      voda describe resnet-7 -o yaml
    """
    from voda.cli.http.client import call_server

    call_server(where, lambda client: _describe(client, job, output))


async def _describe(client: "Client", name: str, output: Output) -> None:
    from voda.api.schemas import JobView
    from voda.cli.http.client import decode, resource_path
    from voda.cli.render.job_details import description, load_context
    from voda.cli.render.terminal import now, print_answer, show

    body = await client.get(resource_path("jobs", name))
    job = decode(body, JobView)
    if output in ("table", "wide"):
        show(description(job, await load_context(client, job), now()))
    else:
        print_answer(body, output, [job.job_id])
