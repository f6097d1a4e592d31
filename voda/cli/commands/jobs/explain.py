"""`voda explain`: why a job has its GPUs, or why it waits."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.completion import all_jobs
from voda.cli.execution import run_async
from voda.cli.log_files import MOMENT, LogOutput, LogOutputOption, is_log, open_log, place_of, print_json
from voda.cli.options import JOB_HELP, ServerOptions
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from voda.timetravel.explanation import JobExplanation


@command("explain")
def explain(
    where: ServerOptions,
    asked: Annotated[
        list[str],
        Argument(metavar="[LOG] JOB", help=f"{JOB_HELP} Of a log, the log goes before it.", autocompletion=all_jobs),
    ],
    at: Annotated[str, Option("--at", help=f"At {MOMENT}; by default the end.")] = "",
    output: LogOutputOption = "table",
) -> None:
    """Explain why a job has its GPUs or waits; for an ended job, its history.

    On Kubernetes, NAMESPACE/NAME may be a pod that asks for GPUs or parts of
    them: what it has of which GPU, and beside whom, or why it waits. A job of
    that name goes before it: pod/NAMESPACE/NAME is always the pod. A bare name
    that is no job's is that of a pod of namespace default.

    voda computes the explanation: it asks the policy again with the state of that
    moment. For a waiting job it says what is missing, what would let it start,
    and when it is expected to start. With a job alone, voda asks the server; with
    a log and a job, it reads the log. --at -10m is ten minutes before the last
    event of the log, not before now.

    \b
    Examples:
      voda explain resnet-7
      voda explain ml/notebook-0
      voda explain pod/ml/notebook-0
      voda explain voda.db resnet-7
      voda explain out/mine/elastic-fifo/log vgg16-19 --at +30m
      voda explain resnet-7 --at 2026-01-31T12:00:00Z -o json
    """
    if len(asked) > 2:
        raise InvalidInput(f"one job is explained at a time: expected JOB or LOG JOB, got {' '.join(asked)[:200]!r}")
    if len(asked) == 1 and is_log(asked[0]):
        raise InvalidInput(f"which job of {asked[0][:200]}? expected: voda explain LOG JOB")
    if len(asked) == 2:
        _show_recorded(*asked, at=at, output=output)
    else:
        _show_from_server(where, *asked, at=at, output=output)


def _show_from_server(where: ServerOptions, job: str, *, at: str, output: LogOutput) -> None:
    from voda.cli.http.client import Client, call_server, decode, resource_path
    from voda.cli.http.confirmation import note_owner
    from voda.cli.http.pods import is_pod, pod_body, pod_body_if_any
    from voda.cli.render.explanation import explanation_text
    from voda.cli.render.pod_details import pod_text
    from voda.cli.render.terminal import now, print_bytes, show
    from voda.text import full
    from voda.wire.explanations import ExplanationView
    from voda.wire.pods import SharingPodView

    if at and is_pod(job):
        raise InvalidInput(f"of pods voda knows the present alone: expected {job[:200]} without --at")

    def read(client: Client) -> tuple[bytes, bool]:
        if is_pod(job):
            return pod_body(client, job), False
        if not at:
            note_owner(client, job)
        try:
            return client.get(resource_path("jobs", job, "explain"), {"at": at} if at else None), True
        except NotFound:
            # Of pods voda knows the present alone.
            if at or (pod := pod_body_if_any(client, job)) is None:
                raise
            return pod, False

    body, is_job = call_server(where, read)
    when = partial(full, at=now())
    if output == "json":
        print_bytes(body)
    elif is_job:
        show(explanation_text(decode(body, ExplanationView), when))
    else:
        show(pod_text(decode(body, SharingPodView), when))


def _show_recorded(log: str, job: str, *, at: str, output: LogOutput) -> None:
    from voda.api.presenters.explanations import explanation_of
    from voda.cli.render.explanation import explanation_text
    from voda.cli.render.terminal import show

    result = run_async(_explain(log, job, at))
    if output == "json":
        print_json(result)
    else:
        show(explanation_text(explanation_of(result, expected_start_at=result.expected_start_at)))


async def _explain(log: str, job: str, at: str) -> "JobExplanation":
    from msgspec.structs import replace

    from voda.simulator.whatif.forecast import expected_start
    from voda.timetravel.job_explanation import explain, job_named

    async with open_log(log) as store:
        place = await place_of(store, at)
        result = await explain(store, await job_named(store, job, place.position), place)
        if result.nodes or not result.shortage:
            return result
        start_at = await expected_start(store, result.job_id, place.position, pool=result.pool)
        return replace(result, expected_start_at=start_at)
