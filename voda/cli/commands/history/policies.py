"""`voda policies`: the policies, their parameters and their papers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from voda.cli.log_files import LogOutput, LogOutputOption
from voda.cli.options import command

if TYPE_CHECKING:
    from voda.policies import Policy


@command("policies")
def list_policies(
    output: LogOutputOption = LogOutput.TABLE,
) -> None:
    """List the policies with their papers and parameters.

    A policy says how many replicas each job gets. One file in voda/policies/
    adds one.

    \b
    Examples:
      voda policies
      voda policies -o json
    """
    from voda.policies import POLICIES

    if output is LogOutput.JSON:
        print(_as_json(POLICIES))
    else:
        _show(POLICIES)


def _as_json(known: "Mapping[str, Policy]") -> str:
    import msgspec

    from voda.policies.toolkit.parameters import parameter_schemas

    parameters = parameter_schemas()
    rows = [
        {"name": name, "title": policy.title, "paper": policy.paper, "parameters": parameters.get(name, {})}
        for name, policy in known.items()
    ]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def _show(known: "Mapping[str, Policy]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from voda.policies.toolkit.parameters import parameter_schemas

    parameters = parameter_schemas()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column("policy", no_wrap=True, style="bold")
    table.add_column("what it does, its paper, and its parameters")
    for name, policy in known.items():
        lines = [_parameter(of, schema) for of, schema in parameters.get(name, {}).items()]
        table.add_row(name, Text.assemble(policy.title, "\n", (policy.paper, "dim"), *(f"\n{line}" for line in lines)))
    Console().print(table)


def _parameter(name: str, schema: "Mapping[str, Any]") -> str:
    bounds = [f"{schema[bound]:g}" if bound in schema else "" for bound in ("minimum", "maximum")]
    limits = f", {bounds[0]} to {bounds[1]}" if any(bounds) else ""
    return f"{name} = {schema['default']}{limits}: {schema.get('description', '')}"
