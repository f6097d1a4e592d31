"""The settings of a pool: one record, from which events, API, command line and settings file take names, bounds, texts.

Another setting is a field here, and what uses it. Rule: the log holds only what somebody set, so a released setting
keeps its name.
"""

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

ParameterValue = bool | int | float | str
Parameters = Mapping[str, Mapping[str, ParameterValue]]
"""Policy -> parameter -> value."""
SettingValue = ParameterValue | Parameters
SettingsPatch = Mapping[str, SettingValue]
"""Setting -> value, of those that are given; of `parameters`, those that are given."""
_SpanOfADay = Annotated[float, Meta(ge=0, le=86_400)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Centuries = Annotated[float, Meta(ge=0, le=36_500 * 86_400)]
_Bytes = Annotated[int, Meta(ge=0, le=2**53)]


class Settings(Struct, frozen=True, kw_only=True):
    """What an operator can set for one pool, at run time; every change is an event."""

    policy: Annotated[str, Meta(description="How many replicas each job gets.")] = "elastic-fifo"
    placer: Annotated[str, Meta(description="Where they go: steady or packed.")] = "steady"
    ratelimit_s: Annotated[
        _SpanOfADay, Meta(description="Least time from a plan that interrupts jobs to the next one; 0 = none.")
    ] = 30.0
    parameters: Annotated[
        Parameters, Meta(description="Policy -> parameter -> value; every parameter that is left out stays.")
    ] = {}
    resize_cost_s: Annotated[_SpanOfADay, Meta(description="Of a restart, until it is measured.")] = 60.0
    span_penalty: Annotated[
        _Share, Meta(description="Share of speed that workers on several nodes lose, until it is measured.")
    ] = 0.1
    heeds_resize_cost: Annotated[bool, Meta(description="Grow only where it saves more time than it costs.")] = True
    node_grace_s: Annotated[
        _SpanOfADay, Meta(description="How long workers stay on a node that is silent or says too few GPUs.")
    ] = 60.0
    start_timeout_s: Annotated[
        _SpanOfADay, Meta(description="How long a job may leave its GPUs unused until others go first; 0 = for ever.")
    ] = 120.0
    reclaim_grace_s: Annotated[
        _SpanOfADay,
        Meta(description="How long a job may take to give cells back that a guarantee needs, before it is killed."),
    ] = 120.0
    retention_s: Annotated[
        _Centuries, Meta(description="How long an ended job's folder is kept on one machine; 0 = always.")
    ] = 30 * 86_400.0
    retention_bytes: Annotated[_Bytes, Meta(description="Up to which size together; 0 = any size.")] = 20_000_000_000
    output_bytes: Annotated[
        int,
        Meta(ge=1_000_000, le=2**53, description="Most that a job's replicas together may have printed there."),
    ] = 1_000_000_000


ON_ONE_MACHINE: Final[SettingsPatch] = {"ratelimit_s": 5.0, "resize_cost_s": 5.0}
"""Of a new pool of one machine: processes restart in seconds, pods in a minute; so plans may follow sooner."""
OF_ONE_MACHINE: Final = frozenset({"retention_s", "retention_bytes", "output_bytes"})
"""Settings that mean nothing elsewhere."""


def patched(settings: Settings, patch: SettingsPatch) -> Settings:
    """Return the settings with those of a patch in their place; a setting that went is left out."""
    given = {name: value for name, value in patch.items() if name in Settings.__struct_fields__}
    new: Parameters = given.pop("parameters", {})  # type: ignore[assignment]  # a patch has been checked
    before = settings.parameters
    parameters = {**before, **{policy: {**before.get(policy, {}), **values} for policy, values in new.items()}}
    return replace(settings, parameters=parameters, **given)


def flat(patch: SettingsPatch) -> dict[str, ParameterValue]:
    """Return a patch with the parameters of a policy as POLICY.NAME, after the others."""
    parameters = patch.get("parameters")
    policies = parameters.items() if isinstance(parameters, Mapping) else ()
    values = {name: value for name, value in patch.items() if not isinstance(value, Mapping)}
    return {**values, **{f"{policy}.{name}": one for policy, each in policies for name, one in each.items()}}
