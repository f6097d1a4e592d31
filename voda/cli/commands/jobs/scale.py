"""`voda scale`: changes the replicas, priority or epochs of a live job."""

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.options import Output, OutputOption, ServerOptions, YesOption, live_jobs, provided
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidField, InvalidInput

if TYPE_CHECKING:
    from voda.api.schemas import JobView
    from voda.cli.http.client import Client

_FIELDS = (
    ("min", "min_replicas"),
    ("max", "max_replicas"),
    ("replicas", "requested_replicas"),
    ("priority", "priority"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleArguments:
    """The fields to change; None = as it is."""

    min_replicas: Annotated[int | None, Option("--min", help="Fewest replicas.")] = None
    max_replicas: Annotated[int | None, Option("--max", help="Most replicas.")] = None
    requested_replicas: Annotated[int | None, Option("--replicas", help="Requested replicas, between min and max.")] = (
        None
    )
    priority: Annotated[int | None, Option("--priority", help="Higher goes first, whatever the policy.")] = None
    epochs: Annotated[int | None, Option("--epochs", help="Epochs to train; forecasts use it.")] = None


@command("scale")
def scale(
    where: ServerOptions,
    job: Annotated[str, Argument(help="The job.", autocompletion=live_jobs)],
    fields: ScaleArguments,
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Change the replicas, priority or epochs of a live job; the rest stays.

    \b
    Examples:
      voda scale resnet-7 --max 8
      voda scale resnet-7 --min 2 --max 2
      voda scale resnet-7 --priority 10 --epochs 40
    """
    from voda.cli.http.client import call_server

    change = provided(**asdict(fields))
    if not change:
        raise InvalidInput("nothing to change: give --min, --max, --replicas, --priority or --epochs")
    call_server(where, lambda client: _scale(client, job, change, output, is_sure=yes))


async def _scale(client: "Client", name: str, change: dict[str, object], output: Output, *, is_sure: bool) -> None:
    from voda.api.schemas import JobView
    from voda.cli.http.client import decode, resource_path
    from voda.cli.http.confirmation import ChangeConfirmation
    from voda.cli.render.job_text import exactly
    from voda.cli.render.terminal import note, plain, print_answer

    job = await ChangeConfirmation(client, "scale", is_sure=is_sure).job(name)
    try:
        before, after = await client.patch(resource_path("jobs", exactly(job)), change, lost=note)
    except InvalidField as error:
        raise InvalidField(error.field, _with_options(str(error))) from error
    old, new = decode(before.body, JobView), decode(after.body, JobView)
    print_answer(after.body, output, [new.job_id], lambda: plain(f"{new.job_id}: {_difference(old, new)}"))


def _with_options(message: str) -> str:
    """Return a message of the server with the options of this command for the fields of a job."""
    for option, field in _FIELDS:
        message = re.sub(rf"\b{field}\b", f"--{option}", message)
    return message


def _difference(old: "JobView", new: "JobView") -> str:
    pairs = [(word, getattr(old, field), getattr(new, field)) for word, field in _FIELDS]
    pairs.append(("epochs", old.progress.epochs, new.progress.epochs))
    changes = [f"{word} {before} -> {after}" for word, before, after in pairs if before != after]
    return ", ".join(changes) or "no change"
