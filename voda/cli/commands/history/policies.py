"""`voda policies`: the policies, their parameters and their papers, and how good the estimates are that they read."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from voda.cli.command_group import command
from voda.cli.execution import run_async
from voda.cli.log_files import LogOutput, LogOutputOption, open_log, print_json
from voda.cli.parameters import Option

_JUDGED: Final = "at 10 %"
"""The moment for which there is a goal."""


@command("policies")
def list_policies(
    *,
    accuracy: Annotated[
        str, Option("--accuracy", metavar="LOG", help="Show how far off the estimates of this log's jobs were.")
    ] = "",
    output: LogOutputOption = "table",
) -> None:
    """List the policies with their papers and parameters, or judge estimates.

    A policy says how many replicas each job gets. One file in voda/policies/
    adds one.

    \b
    Examples:
      voda policies
      voda policies -o json
      voda policies --accuracy voda.db

    --accuracy compares what was believed of each job's work with what the job
    needed in the end: when it was submitted, at a tenth and at half of its work.
    """
    if accuracy:
        run_async(_judge(accuracy, output))
        return
    import msgspec

    from voda.policies import POLICIES
    from voda.policies.toolkit.parameters import parameter_schemas

    schemas = parameter_schemas()
    rows = [
        {"name": name, "title": policy.title, "paper": policy.paper, "parameters": schemas.get(name, {})}
        for name, policy in POLICIES.items()
    ]
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    else:
        _show(rows)


async def _judge(log: str, output: LogOutput) -> None:
    from voda.cli.render.replay import estimates_table
    from voda.cli.render.terminal import show
    from voda.timetravel.estimate_accuracy import EstimateAccuracy
    from voda.timetravel.replay import events_between

    judge = EstimateAccuracy()
    async with open_log(log) as store:
        async for event in events_between(store):
            judge.apply(event)
    rows = judge.rows()
    if output == "json":
        print_json(rows)
    elif rows:
        show(estimates_table(rows, _JUDGED))
    else:
        print("No job of this log has completed with work that is known.", file=sys.stderr)


def _show(policies: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column("policy", no_wrap=True, style="bold")
    table.add_column("what it does, its paper, and its parameters")
    for policy in policies:
        parameters = [f"\n{_parameter(name, schema)}" for name, schema in policy["parameters"].items()]
        table.add_row(policy["name"], Text.assemble(policy["title"], "\n", (policy["paper"], "dim"), *parameters))
    Console().print(table)


def _parameter(name: str, schema: "Mapping[str, Any]") -> str:
    return f"{name} = {schema['default']}{_limits(schema)}: {schema.get('description', '')}"


def _limits(schema: "Mapping[str, Any]") -> str:
    least, most = (f"{schema[bound]:g}" if bound in schema else "" for bound in ("minimum", "maximum"))
    if least and most:
        return f", {least} to {most}"
    return f", {least or most} or {'more' if least else 'less'}" if least or most else ""
