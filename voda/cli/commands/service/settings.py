"""`voda settings` and `voda set-policy`: how a pool is decided."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.options import (
    Output,
    OutputOption,
    ServerOptions,
    complete_policies,
    complete_pools,
    complete_virtual_clusters,
    provided,
)
from voda.cli.parameters import Argument, Option
from voda.text import short, size

if TYPE_CHECKING:
    from voda.cli.http.client import Client
    from voda.wire.pools import SettingsView


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsArguments:
    """The settings to change; None = as it is."""

    policy: Annotated[
        str | None,
        Option(
            "--policy",
            help="How many replicas each gets.",
            default_text="elastic-fifo in a new pool",
            autocompletion=complete_policies,
        ),
    ] = None
    placer: Annotated[
        str | None, Option("--placer", help="Where they go: steady or packed.", default_text="steady in a new pool")
    ] = None
    ratelimit_s: Annotated[
        float | None,
        Option(
            "--ratelimit",
            metavar="SPAN",
            help="Between plans that interrupt jobs: 5, 1m; 0 = none.",
            default_text="30 in a new pool, 5 of voda up",
            is_span=True,
        ),
    ] = None
    resize_cost_s: Annotated[
        float | None,
        Option(
            "--resize-cost",
            metavar="SPAN",
            help="Of a restart, until it is measured.",
            default_text="1m in a new pool, 5s of voda up",
            is_span=True,
        ),
    ] = None
    heeds_resize_cost: Annotated[
        bool | None,
        Option(
            "--heed-resize-cost/--ignore-resize-cost",
            help="Grow only where it pays.",
            default_text="heed in a new pool",
        ),
    ] = None
    span_penalty: Annotated[
        float | None,
        Option(
            "--span-penalty", help="Speed lost by workers on several nodes, 0 to 1.", default_text="0.1 in a new pool"
        ),
    ] = None
    node_grace_s: Annotated[
        float | None,
        Option(
            "--node-grace",
            metavar="SPAN",
            help="Workers stay on a silent node so long.",
            default_text="1m in a new pool",
            is_span=True,
        ),
    ] = None
    start_timeout_s: Annotated[
        float | None,
        Option("--start-timeout", metavar="SPAN", help="Then others go before a stuck job; 0 = never.", is_span=True),
    ] = None
    reclaim_grace_s: Annotated[
        float | None,
        Option("--reclaim-grace", metavar="SPAN", help="To give lent cells back; then a job is killed.", is_span=True),
    ] = None
    retention_s: Annotated[
        float | None,
        Option(
            "--retention",
            metavar="30d",
            help="Ended jobs' folders are kept so long; 0 = always.",
            default_text="30d in a new pool",
            is_span=True,
            needs_unit=True,
        ),
    ] = None
    retention_size: Annotated[
        str | None,
        Option(
            "--retention-size",
            metavar="20GB",
            help="Together they take no more; 0 = any size.",
            default_text="20GB in a new pool",
        ),
    ] = None
    output_size: Annotated[
        str | None,
        Option(
            "--output-size",
            metavar="1GB",
            help="Most that a job's replicas may have printed.",
            default_text="1GB in a new pool",
        ),
    ] = None

    def given(self) -> dict[str, object]:
        """Return the settings to change, by their names in the API."""
        from voda.cli.quantities import size_bytes

        values = provided(**asdict(self))
        for name in ("retention", "output"):
            if (text := values.pop(f"{name}_size", None)) is not None:
                values[f"{name}_bytes"] = size_bytes(str(text), f"--{name}-size")
        return values


@command("settings")
def settings(  # noqa: PLR0913 - whose they are, and what is to change
    *,
    where: ServerOptions,
    pool: Annotated[str, Argument(help="By default the only one; all are shown.", autocompletion=complete_pools)] = "",
    named: Annotated[str, Option("--pool", help="The same.", autocompletion=complete_pools)] = "",
    cluster: Annotated[
        str,
        Option(
            "--vc",
            metavar="NAME",
            help="Of this virtual cluster: its policy; '' = the pool's.",
            autocompletion=complete_virtual_clusters,
        ),
    ] = "",
    change: SettingsArguments,
    output: OutputOption = "table",
) -> None:
    """Show how a pool is decided, or change it; what is left out stays.

    \b
    Examples:
      voda settings
      voda settings --policy elastic-tiresias --ratelimit 10
      voda settings a100 --placer packed -o json
      voda settings --retention 14d --retention-size 100GB
      voda settings --vc vision --policy elastic-srjf
    """
    from voda.cli.commands.service.vc import set_policy_of
    from voda.cli.http.client import call_server

    if cluster:
        policy = _only_policy(change.given())
        call_server(where, lambda client: set_policy_of(client, cluster, pool or named, policy, output))
        return
    call_server(where, lambda client: _show(client, pool or named, change.given(), output))


def _only_policy(change: dict[str, object]) -> str | None:
    """Return the policy to set, None = it stays; InvalidInput where other settings are to change."""
    from voda.domain.errors import InvalidInput

    policy = change.pop("policy", None)
    if change:
        raise InvalidInput(f"--vc: a virtual cluster has a policy of its own, but {', '.join(change)} of its pool only")
    return None if policy is None else str(policy)


@command("set-policy")
def set_policy(
    where: ServerOptions,
    policy: Annotated[str, Argument(help="Its name.", autocompletion=complete_policies)],
    parameter: Annotated[
        list[str] | None, Option("--parameter", "-P", metavar="NAME=VALUE", help="Of the policy; repeatable.")
    ] = None,
    pool: Annotated[str, Option("--pool", help="By default the only one.", autocompletion=complete_pools)] = "",
    output: OutputOption = "table",
) -> None:
    """Let another policy decide; `voda policies` lists them with their parameters.

    \b
    Example:
      voda set-policy elastic-tiresias
      voda set-policy elastic-tiresias --pool a100 --parameter compact_pending=5
    """
    from voda.cli.http.client import call_server
    from voda.policies.toolkit.parameters import parse_assignments

    values = parse_assignments(policy, parameter or ())
    change = provided(policy=policy, parameters={policy: values} if values else None)
    call_server(where, lambda client: _show(client, pool, change, output))


async def _show(client: "Client", pool: str, change: dict[str, object], output: Output) -> None:
    names = [pool] if pool else await _pools(client, is_shown=not change and output in ("table", "wide"))
    for name in names:
        await _show_pool(client, name, change, output)


async def _show_pool(client: "Client", pool: str, change: dict[str, object], output: Output) -> None:
    from voda.cli.http.client import decode, resource_path
    from voda.cli.render.terminal import note, print_answer
    from voda.wire.pools import SettingsView

    where = resource_path("pools", pool, "settings")
    if not change:
        before = after = await client.ask("GET", where)
    else:
        before, after = await client.patch(where, change, lost=note)
    old, new = decode(before.body, SettingsView), decode(after.body, SettingsView)
    print_answer(after.body, output, [pool], lambda: _text(pool, old, new, is_change=bool(change)))


async def _pools(client: "Client", *, is_shown: bool) -> list[str]:
    """Return the only pool; of several, all if they are only shown, to people."""
    from voda.cli.watch.lists import fetch_pools
    from voda.domain.errors import InvalidInput

    found, _ = await fetch_pools(client, ())
    if len(found) != 1 and not (found and is_shown):
        raise InvalidInput(f"which pool? there are {', '.join(pool.name for pool in found)}: name one of them")
    return [pool.name for pool in found]


def _text(pool: str, old: "SettingsView", new: "SettingsView", *, is_change: bool) -> str:
    before, after = _by_name(old), _by_name(new)
    if not is_change:
        others = tuple(f"{policy}." for policy in new.parameters if policy != new.policy)
        shown = {name: value for name, value in after.items() if not name.startswith(others)}
        width = max(26, *(len(name) + 2 for name in shown))
        return "\n".join(
            [f"pool {pool}", *(f"  {name:<{width}}{_shown(name, value)}" for name, value in shown.items())]
        )
    changes = [
        f"{name} {_shown(name, before[name])} -> {_shown(name, after[name])}"
        for name in after
        if before[name] != after[name]
    ]
    return f"pool {pool}: {', '.join(changes) or 'it is set so already'}"


def _by_name(settings: "SettingsView") -> dict[str, object]:
    """Return the settings by name, the parameters of a policy as POLICY.NAME."""
    from msgspec.structs import asdict

    values = {name: value for name, value in asdict(settings).items() if name != "parameters"}
    for policy, parameters in settings.parameters.items():
        values |= {f"{policy}.{name}": value for name, value in parameters.items()}
    return values


def _shown(name: str, value: object) -> str:
    if isinstance(value, int) and name.endswith("_bytes"):
        return f"{value} ({size(value)})" if value else "0 (any size)"
    if name == "retention_s" and isinstance(value, float):
        return f"{value:.0f} ({short(value)})" if value else "0 (always)"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
