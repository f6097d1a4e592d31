"""`voda usage`: who used how many GPUs, how long jobs waited, and how they ended."""

import sys
from typing import TYPE_CHECKING, Annotated, Literal

from voda.cli.command_group import command
from voda.cli.options import ServerOptions
from voda.cli.parameters import Option

if TYPE_CHECKING:
    from voda.projections.usage import UsageKey
    from voda.wire.housekeeping import UsageView

_LIMIT_S = 600.0
UsageOutput = Literal["table", "json", "csv"]


@command("usage")
def usage(  # noqa: PLR0913 - a command's options are its parameters
    where: ServerOptions,
    user: Annotated[str, Option("--user", "-u", help="Only the jobs of this user.")] = "",
    since: Annotated[str, Option("--since", metavar="30d|DATE", help="A span before now, or a time.")] = "30d",
    until: Annotated[str, Option("--until", metavar="1d|DATE", help="The same; by default now.")] = "",
    by: Annotated[
        Literal["user", "job", "pool", "day"], Option("--by", help="What a line is about; days are in UTC.")
    ] = "user",
    log: Annotated[str, Option("--log", metavar="LOG", help="Read this log instead of asking the server.")] = "",
    output: Annotated[
        UsageOutput, Option("--output", "-o", help="For people (table) or for programs (json, csv).")
    ] = "table",
) -> None:
    """Show GPU-hours, waiting and ends of jobs, by user, job, pool or day.

    What runs counts up to now. You see your own jobs; admins and viewers see all.
    WAIT is from submission to the first worker, of jobs that started meanwhile.

    \b
    Examples:
      voda usage
      voda usage --since 2026-01-01 --until 2026-02-01 -o csv
      voda usage --user ada --since 7d --by day
      voda usage --log voda.db --by job
    """
    from voda.cli.http.client import call_server

    if log:
        body = _offline(log, since, until, user, by)
    else:
        asked = {"user": user, "since": since, "until": until, "by": by}
        params = {name: value for name, value in asked.items() if value}
        # A long log takes its time.
        body = call_server(where, lambda client: client.get("/usage", params), timeout_s=_LIMIT_S)
    _print(body, output)


def _offline(log: str, since: str, until: str, user: str, by: "UsageKey") -> bytes:
    import msgspec

    from voda.api.presenters.usage import usage_of
    from voda.cli.execution import progress_bar, run_async
    from voda.cli.log_files import open_log
    from voda.timetravel.accounting import end_of, instant_of, usage_between

    async def read() -> "UsageView":
        async with open_log(log) as store:
            # Nobody knows what ran after the last event, so that is now.
            now = await end_of(store) + 1e-6
            begin, end = instant_of(since, now), min(instant_of(until, now) if until else now, now)
            with progress_bar("usage") as progress:
                found = await usage_between(store, begin, end, user=user, progress=progress)
        return usage_of(found, by, user, most=sys.maxsize)

    return msgspec.json.encode(run_async(read()))


def _print(body: bytes, output: UsageOutput) -> None:
    from voda.cli.http.client import decode
    from voda.cli.render.terminal import now, print_bytes, show_lines
    from voda.cli.render.usage import left_out_text, usage_csv, usage_table
    from voda.wire.housekeeping import UsageView

    if output == "json":
        print_bytes(body)
        return
    found = decode(body, UsageView)
    if output == "csv":
        print(usage_csv(found), end="", flush=True)
        if found.left_out:
            print(f"voda: {left_out_text(found)}", file=sys.stderr)
        return
    show_lines(lambda width: usage_table(found, now(), width=width))
