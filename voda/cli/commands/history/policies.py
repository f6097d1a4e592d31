"""`voda policies`: the policies, their parameters and their papers."""

from collections.abc import Mapping, Sequence
from typing import Any

from voda.cli.command_group import command
from voda.cli.log_files import LogOutputOption


@command("policies")
def list_policies(output: LogOutputOption = "table") -> None:
    """List the policies with their papers and parameters.

    A policy says how many replicas each job gets. One file in voda/policies/
    adds one.

    \b
    Examples:
      voda policies
      voda policies -o json
    """
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
