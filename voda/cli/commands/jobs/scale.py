"""`voda scale`: changes the replicas, priority or epochs of a live job."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.completion import live_jobs
from voda.cli.options import JOB_HELP, Output, OutputOption, ServerOptions, YesOption, provided
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidField, InvalidInput

if TYPE_CHECKING:
    from voda.cli.http.client import Client
    from voda.wire.jobs import JobView

_Options = Sequence[tuple[str, str]]
"""(option, field of a job), the first of a field counts."""
_FIELDS: _Options = (
    ("min", "min_replicas"),
    ("max", "max_replicas"),
    ("replicas", "requested_replicas"),
    ("priority", "priority"),
)
_WORKERS: _Options = (("workers", "min_replicas"), ("workers", "max_replicas"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleArguments:
    """The fields to change; None = as it is."""

    workers: Annotated[
        str | None,
        Option("--workers", metavar="SIZES", help="Workers: 2, 1-4 (of its sizes); or new sizes: 1-4:1, 1,2,4,8."),
    ] = None
    min_replicas: Annotated[int | None, Option("--min", help="Fewest replicas.")] = None
    max_replicas: Annotated[int | None, Option("--max", help="Most replicas.")] = None
    requested_replicas: Annotated[int | None, Option("--replicas", help="Requested replicas, between min and max.")] = (
        None
    )
    priority: Annotated[int | None, Option("--priority", help="Higher goes first, whatever the policy.")] = None
    epochs: Annotated[int | None, Option("--epochs", help="Epochs to train; forecasts use it.")] = None


@command("scale")
def scale(  # noqa: PLR0913 - a command's options are its parameters
    where: ServerOptions,
    job: Annotated[str, Argument(help=JOB_HELP, autocompletion=live_jobs)],
    fields: ScaleArguments,
    sizes: Annotated[str | None, Argument(help="Workers, as --workers.")] = None,
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Change the workers, priority or epochs of a live job; the rest stays.

    A job that runs is restarted at its new size, and goes on from its checkpoint.

    \b
    Examples:
      voda scale resnet-7 2
      voda scale resnet-7 1-4
      voda scale resnet-7 1,2,4,8
      voda scale resnet-7 --max 8
      voda scale resnet-7 --priority 10 --epochs 40
    """
    from voda.cli.http.client import call_server

    # The user said neither --min nor --max, but workers.
    options = _FIELDS if sizes is None and fields.workers is None else (*_WORKERS, *_FIELDS)
    try:
        change = _changed(fields, sizes)
        call_server(where, lambda client: _scale(client, job, change, output, is_sure=yes))
    except InvalidField as error:
        told = _with_options(str(error), options)
        raise InvalidField(error.field, told if sizes is None else told.removeprefix("--workers: ")) from error


def _changed(fields: ScaleArguments, size: str | None = None) -> dict[str, object]:
    """Return the fields of a PATCH; raises InvalidInput where there are none, or one is given in two ways."""
    from voda.domain.sizes.text import parse_sizes

    change = provided(**asdict(fields))
    if size is not None and "workers" in change:
        raise InvalidInput(f"{size} and --workers {change['workers']} both say how many workers: give one of them")
    if size is not None:
        change["workers"] = size
    if not change:
        raise InvalidInput(
            "nothing to change: give the workers (2 or 1-4), --min, --max, --replicas, --priority or --epochs"
        )
    if (workers := change.pop("workers", None)) is None:
        return change
    if "min_replicas" in change or "max_replicas" in change:
        raise InvalidInput("--workers is both --min and --max: give it, or them")
    sizes = parse_sizes(str(workers), "--workers")
    # Bounds alone, such as 1-4, leave a job its sizes.
    is_bounds = "," not in str(workers) and ":" not in str(workers)
    return {
        **change,
        **({} if is_bounds else {"sizes": str(workers)}),
        "min_replicas": sizes.least,
        "max_replicas": sizes.most,
    }


def _scale(client: "Client", name: str, change: dict[str, object], output: Output, *, is_sure: bool) -> None:
    from voda.cli.http.client import decode, resource_path
    from voda.cli.http.confirmation import ChangeConfirmation
    from voda.cli.render.job_text import exactly
    from voda.cli.render.terminal import note, plain, print_answer
    from voda.wire.jobs import JobView

    job = ChangeConfirmation(client, "scale", is_sure=is_sure).job(name)
    before, after = client.patch(resource_path("jobs", exactly(job)), change)
    old, new = decode(before.body, JobView), decode(after.body, JobView)
    print_answer(after.body, output, [new.job_id], lambda: plain(f"{new.job_id}: {_difference(old, new)}"))
    if new.min_replicas > old.min_replicas and (warning := _too_big(client, new)):
        note(f"{new.job_id}: {warning}")


def _too_big(client: "Client", job: "JobView") -> str:
    """Return that the nodes of its pool have no room for the job even when empty; empty: they have, or are none."""
    from voda.cli.watch.lists import fetch_nodes

    nodes, _ = fetch_nodes(client, (), job.pool)
    if not nodes or not job.gpus_per_replica or job.share is not None:
        return ""
    room = sum((node.gpus - node.foreign_gpus) // job.gpus_per_replica for node in nodes if node.is_ready)
    if room >= job.min_replicas:
        return ""
    return (
        f"it waits until nodes join or its minimum is less: it needs {job.min_replicas} workers, and pool {job.pool}"
        f" has room for {room} when empty"
    )


def _with_options(message: str, options: _Options) -> str:
    """Return a message of the server with the options of this command for the fields of a job."""
    for option, field in options:
        message = re.sub(rf"\b{field}\b", f"--{option}", message)
    return message


def _difference(old: "JobView", new: "JobView") -> str:
    pairs = [(word, getattr(old, field), getattr(new, field)) for word, field in _FIELDS]
    pairs.append(("epochs", old.progress.epochs, new.progress.epochs))
    pairs.append(("sizes", old.sizes or "all", new.sizes or "all"))
    changes = [f"{word} {before} -> {after}" for word, before, after in pairs if before != after]
    return ", ".join(changes) or "no change"
