"""`voda settings` and `voda set-policy`: how a pool is decided."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from voda.cli.command_group import command
from voda.cli.completion import complete_policies, complete_pools, complete_virtual_clusters
from voda.cli.options import Output, OutputOption, ServerOptions, provided
from voda.cli.parameters import Argument, Option
from voda.text import short, size

if TYPE_CHECKING:
    from voda.cli.http.client import Client
    from voda.domain.settings import ParameterValue, Settings


def all_settings() -> Any:
    """Return an option for each setting."""
    from msgspec.structs import asdict

    from voda.cli.setting_options import setting_options
    from voda.domain.settings import Settings, flat

    return setting_options(*flat(asdict(Settings())))


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
    change: all_settings,  # type: ignore[valid-type]  # made of the settings' record
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
        policy = _only_policy(provided(**asdict(change)))
        call_server(where, lambda client: set_policy_of(client, cluster, pool or named, policy, output))
        return
    call_server(where, lambda client: _show(client, pool or named, provided(**asdict(change)), output))


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
    from voda.domain.errors import InvalidField
    from voda.policies.toolkit.parameters import FIELD, parse_assignments

    values = parse_assignments(policy, parameter or ())
    change = provided(policy=policy, parameters={policy: values} if values else None)
    try:
        call_server(where, lambda client: _show(client, pool, change, output))
    except InvalidField as error:
        raise InvalidField(error.field, str(error).replace(f"{FIELD}.{policy}.", "--parameter ")) from error


def _show(client: "Client", pool: str, change: dict[str, object], output: Output) -> None:
    names = [pool] if pool else _pools(client, is_shown=not change and output in ("table", "wide"))
    for name in names:
        _show_pool(client, name, change, output)


def _show_pool(client: "Client", pool: str, change: dict[str, object], output: Output) -> None:
    from voda.cli.http.client import HttpCall, decode, resource_path
    from voda.cli.render.terminal import print_answer
    from voda.domain.settings import Settings

    where = resource_path("pools", pool, "settings")
    if not change:
        before = after = client.ask(HttpCall(path=where))
    else:
        before, after = client.patch(where, change)
    old, new = decode(before.body, Settings), decode(after.body, Settings)
    print_answer(after.body, output, [pool], lambda: _text(pool, old, new, is_change=bool(change)))


def _pools(client: "Client", *, is_shown: bool) -> list[str]:
    """Return the only pool; of several, all if they are only shown, to people."""
    from voda.cli.watch.lists import fetch_pools
    from voda.domain.errors import InvalidInput

    found, _ = fetch_pools(client, ())
    if len(found) != 1 and not (found and is_shown):
        raise InvalidInput(f"which pool? there are {', '.join(pool.name for pool in found)}: name one of them")
    return [pool.name for pool in found]


def _text(pool: str, old: "Settings", new: "Settings", *, is_change: bool) -> str:
    from msgspec.structs import asdict

    from voda.domain.settings import flat

    before, after = flat(asdict(old)), flat(asdict(new))
    if is_change:
        changes = [
            f"{name} {_shown(name, before[name])} -> {_shown(name, value)}"
            for name, value in after.items()
            if before[name] != value
        ]
        return f"pool {pool}: {', '.join(changes) or 'it is set so already'}"
    others = tuple(f"{policy}." for policy in new.parameters if policy != new.policy)
    shown = [(name, _shown(name, value)) for name, value in after.items() if not name.startswith(others)]
    width = max(26, *(len(name) + 2 for name, _ in shown))
    return "\n".join([f"pool {pool}", *(f"  {name:<{width}}{value}" for name, value in shown)])


def _shown(name: str, value: "ParameterValue") -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value} ({size(value) if value else 'any size'})"
    if name == "retention_s" and isinstance(value, float):
        return f"{value:.0f} ({short(value) if value else 'always'})"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
