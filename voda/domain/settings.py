"""The settings of a pool: one record, from which events, API, command line and settings file take names, bounds, texts.

Another setting is a field here, and what uses it. Rule: the log holds only what somebody set, so a released setting
keeps its name.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from voda.domain.errors import InvalidInput

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
    placer: Annotated[str, Meta(description="Where they go: steady, packed or frugal.")] = "steady"
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
    share_measurements: Annotated[
        bool, Meta(description="Estimate jobs from those of the same category of all users, not of one's own alone.")
    ] = False
    most_user_priority: Annotated[
        int, Meta(ge=0, le=1_000_000_000, description="Users may give priorities from minus this to this, admins any.")
    ] = 1_000
    most_user_fixed_gpus: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Most whole GPUs that a user's jobs that are not restartable have together; 0 = any number.",
        ),
    ] = 0
    heeds_resize_cost: Annotated[bool, Meta(description="Grow only where it saves more time than it costs.")] = True
    node_grace_s: Annotated[
        _SpanOfADay, Meta(description="How long workers stay on a node that is silent or says too few GPUs.")
    ] = 60.0
    start_timeout_s: Annotated[
        _SpanOfADay, Meta(description="How long a job may leave its GPUs unused until others go first; 0 = for ever.")
    ] = 120.0
    termination_grace_s: Annotated[
        _SpanOfADay,
        Meta(description="Most that a job's terminationGracePeriodSeconds counts for; what is left then is killed."),
    ] = 600.0
    reclaim_grace_s: Annotated[
        _SpanOfADay,
        Meta(description="How long a job may take to give cells back that a guarantee needs, before it is killed."),
    ] = 120.0
    fair_share: Annotated[
        str,
        Meta(
            max_length=10_000,
            description="Among jobs of equal priority: 'users' = users take turns by the GPU time that they have had"
            " lately; ann=2,bob=0.5 = by these weights, others' 1; '' = no.",
        ),
    ] = ""
    fair_share_half_life_s: Annotated[
        float,
        Meta(ge=60, le=365 * 86_400, description="After which a user's GPU time counts half for fair_share."),
    ] = 86_400.0
    retention_s: Annotated[
        _Centuries, Meta(description="How long an ended job's folder is kept on one machine; 0 = always.")
    ] = 30 * 86_400.0
    retention_bytes: Annotated[_Bytes, Meta(description="Up to which size together; 0 = any size.")] = 20_000_000_000
    output_bytes: Annotated[
        int,
        Meta(ge=1_000_000, le=2**53, description="Most that a job's replicas together may have printed there."),
    ] = 1_000_000_000


_LEAST_WEIGHT: Final = 0.001
_MOST_WEIGHT: Final = 1_000.0
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


def user_weights(fair_share: str) -> Mapping[str, float] | None:
    """Return the weights that the setting names, 1 of any user it leaves out; None: users have no shares.

    Raises:
        InvalidInput: it is neither empty, `users`, nor USER=WEIGHT of several users.
    """
    if not fair_share:
        return None
    weights: dict[str, float] = {}
    for part in () if fair_share == "users" else fair_share.split(","):
        user, separator, text = part.strip().rpartition("=")
        try:
            weight = float(text)
        except ValueError:
            weight = math.nan
        if not (separator and user and 0 < weight <= _MOST_WEIGHT) or user in weights:
            raise InvalidInput(
                f"fair_share: expected 'users', or one USER=WEIGHT for each of some users with a weight above 0 and up"
                f" to {_MOST_WEIGHT:,.0f}, such as ann=2,bob=0.5, got {part.strip()[:60]!r}"
            )
        weights[user] = weight
    return weights


def checked_fair_share(fair_share: str) -> str:
    """Return the setting as it is, or raise InvalidInput.

    It is stricter than what reads the setting: a log may have one that was given before.
    """
    for part in fair_share.split(",") if user_weights(fair_share) else ():
        user, _, text = part.strip().rpartition("=")
        if not (user.isprintable() and user == user.strip() and text.isascii() and float(text) >= _LEAST_WEIGHT):
            raise InvalidInput(
                f"fair_share: expected names without control characters and weights from {_LEAST_WEIGHT:g} to"
                f" {_MOST_WEIGHT:,.0f} in the digits 0 to 9, such as ann=2,bob=0.5, got {part.strip()[:60]!r}"
            )
    return fair_share
