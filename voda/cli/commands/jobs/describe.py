"""`voda describe`: everything about one job."""

from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.completion import all_jobs
from voda.cli.options import JOB_HELP, Output, OutputOption, ServerOptions
from voda.cli.parameters import Argument
from voda.domain.errors import NotFound

if TYPE_CHECKING:
    from voda.cli.http.client import Client


@command("describe", aliases=("status",))
def describe(
    where: ServerOptions,
    job: Annotated[str, Argument(help=JOB_HELP, autocompletion=all_jobs)],
    output: OutputOption = "table",
) -> None:
    """Show everything about a job: its workers and why it has them, progress,
    forecast, recent decisions and events, and where its output is. Of an array:
    what its tasks do. On Kubernetes, NAMESPACE/NAME may be a pod that asks for
    GPUs or parts of them: what it has, or why it waits. A job of that name goes
    before it: pod/NAMESPACE/NAME is always the pod. A bare name that is no job's
    is that of a pod of namespace default.

    \b
    Examples:
      voda describe resnet-7
      voda describe resnet-7 -o yaml
      voda describe sweep
      voda describe ml/notebook-0
    """
    from voda.cli.http.client import call_server

    call_server(where, lambda client: _describe(client, job, output))


def _describe(client: "Client", name: str, output: Output) -> None:
    from voda.cli.http.client import decode, resource_path
    from voda.cli.http.confirmation import note_owner
    from voda.cli.http.pods import is_pod, pod_body, pod_body_if_any
    from voda.cli.render.job_details import description, load_context
    from voda.cli.render.terminal import now, print_answer, show
    from voda.wire.jobs import JobView

    if is_pod(name):
        _show_pod(pod_body(client, name), output)
        return
    try:
        body = client.get(resource_path("jobs", name))
    except NotFound as error:
        if _describe_array(client, name, output):
            return
        if (pod := pod_body_if_any(client, name)) is None:
            raise error from None
        _show_pod(pod, output)
        return
    job = decode(body, JobView)
    if output in ("table", "wide"):
        note_owner(client, name)
        show(description(job, load_context(client, job), now()))
    else:
        print_answer(body, output, [job.job_id])


def _describe_array(client: "Client", name: str, output: Output) -> bool:
    """Show an array, and return whether there is one of that name."""
    from rich.console import Group

    from voda.cli.http.client import decode, resource_path
    from voda.cli.render.arrays import array_description
    from voda.cli.render.tables import jobs_table
    from voda.cli.render.terminal import console, now, print_answer, show
    from voda.cli.watch.lists import fetch_jobs
    from voda.wire.jobs import ArrayView

    try:
        body = client.get(resource_path("arrays", name))
    except NotFound:
        return False
    array = decode(body, ArrayView)
    if output not in ("table", "wide"):
        print_answer(body, output, [array.name])
        return True
    tasks = (fetch_jobs(client, {"array": f"@{array.array_id}"}, limit=0)).items
    screen = console()
    width = screen.width if screen.is_terminal else None
    lines = jobs_table(tasks, now(), wide=output == "wide", width=width)
    show(array_description(array, Group(*lines), now()))
    return True


def _show_pod(body: bytes, output: Output) -> None:
    """Show a pod that asks for GPUs."""
    from functools import partial

    from voda.cli.http.client import decode
    from voda.cli.render.pod_details import pod_text
    from voda.cli.render.terminal import now, print_answer, show
    from voda.text import full
    from voda.wire.pods import SharingPodView

    pod = decode(body, SharingPodView)
    if output in ("table", "wide"):
        show(pod_text(pod, partial(full, at=now())))
    else:
        print_answer(body, output, [pod.pod])
