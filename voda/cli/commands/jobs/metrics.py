"""`voda metrics`: what a job reported, as curves, CSV or JSON."""

from typing import Annotated, Literal

from voda.cli.command_group import command
from voda.cli.completion import all_jobs
from voda.cli.options import JOB_HELP, ServerOptions
from voda.cli.parameters import Argument, Option


@command("metrics")
def metrics(
    where: ServerOptions,
    job: Annotated[str, Argument(help=JOB_HELP, autocompletion=all_jobs)],
    names: Annotated[list[str] | None, Argument(metavar="[METRIC]...", help="Only these; by default all.")] = None,
    output: Annotated[
        Literal["table", "csv", "json"], Option("--output", "-o", help="For people (table) or for programs.")
    ] = "table",
) -> None:
    """Show what a job reported: a curve for each metric, with its values.

    They are the newest 1,000 reports. A value that is no finite number is an x.

    \b
    Examples:
      voda metrics resnet-7
      voda metrics resnet-7 loss val/accuracy
      voda metrics resnet-7 -o csv > resnet-7.csv
    """
    from voda.cli.http.client import call_server, decode, resource_path
    from voda.cli.render.metrics import as_csv, curves, names_of
    from voda.cli.render.terminal import console, note, print_bytes, show
    from voda.domain.errors import InvalidInput
    from voda.wire.jobs import ReportList

    body = call_server(where, lambda client: client.get(resource_path("jobs", job, "progress")))
    if output == "json":
        print_bytes(body)
        return
    reports = decode(body, ReportList).items
    known = names_of(reports)
    if absent := [name for name in names or () if name not in known]:
        raise InvalidInput(f"{job} reported no metric {absent[0][:80]!r}: it has {', '.join(known[:20]) or 'none'}")
    chosen = names or known
    if output == "csv":
        print(as_csv(reports, chosen), end="")
    elif not reports:
        note(f"{job} has reported nothing yet: `from voda.report import report` and report(epoch, metrics={{...}})")
    else:
        first, last = reports[0], reports[-1]
        show(f"{len(reports):,} reports, epochs {first.epochs_done:g} to {last.epochs_done:g}")
        show(*curves(reports, chosen, console().width))
