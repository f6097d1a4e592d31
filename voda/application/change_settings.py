"""Changes the settings of a pool.

Rule: a change is made to the settings that the caller saw, or refused; a setting that stays as it is, is not recorded.
"""

from collections.abc import Callable, Mapping
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from voda.application.journal import Journal
from voda.application.lookup import pool_state
from voda.domain.errors import InvalidField, InvalidInput, PreconditionFailed, StoreUnavailable, VersionConflict
from voda.domain.state import ParameterValue, Settings
from voda.events.types import AnyFact, PolicyChanged, RatelimitChanged, RetentionChanged
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.policies.toolkit.parameters import changed_parameters, check_parameters

_ATTEMPTS = 5
_RETENTION = ("retention_s", "retention_bytes", "output_bytes")
_SpanOfADay = Annotated[float, Meta(ge=0, le=86_400)]
_Share = Annotated[float, Meta(ge=0, le=1)]


class SettingsChange(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """New settings of a pool: a JSON merge patch."""

    policy: str | UnsetType = UNSET
    placer: str | UnsetType = UNSET
    ratelimit_s: _SpanOfADay | UnsetType = UNSET
    parameters: Annotated[
        Mapping[str, Mapping[str, ParameterValue]] | UnsetType,
        Meta(description="Policy -> parameter -> value; every parameter that is left out stays."),
    ] = UNSET
    resize_cost_s: _SpanOfADay | UnsetType = UNSET
    span_penalty: _Share | UnsetType = UNSET
    heeds_resize_cost: bool | UnsetType = UNSET
    node_grace_s: _SpanOfADay | UnsetType = UNSET
    start_timeout_s: _SpanOfADay | UnsetType = UNSET
    reclaim_grace_s: _SpanOfADay | UnsetType = UNSET
    retention_s: Annotated[float, Meta(ge=0, le=36_500 * 86_400)] | UnsetType = UNSET
    retention_bytes: Annotated[int, Meta(ge=0, le=2**53)] | UnsetType = UNSET
    output_bytes: Annotated[int, Meta(ge=1_000_000, le=2**53)] | UnsetType = UNSET


async def change_settings(
    journal: Journal,
    pool: str,
    change: SettingsChange,
    *,
    actor: str,
    is_expected: Callable[[Settings], bool] = lambda _settings: True,
) -> Settings:
    """Record a change of the pool's settings, and return the settings in force.

    Raises:
        InvalidField: a policy, placer or parameter is unknown, or a parameter is out of its bounds.
        PreconditionFailed: the settings that would be changed are not those that the caller saw (`is_expected`).
        StoreUnavailable: others keep changing them, or the log does not answer.
    """
    _refuse_unknown(change)
    if change.parameters is not UNSET:
        change = replace(change, parameters=check_parameters(change.parameters))
    for _ in range(_ATTEMPTS):
        head = await journal.store.head(f"settings.{pool}")
        # Now the view is at least as new as the head; if it is newer, the append is refused.
        await journal.catch_up()
        current = pool_state(journal.view, pool).settings
        if not is_expected(current):
            raise PreconditionFailed(
                f"the settings of pool {pool} have changed since you read them: get them again, and decide again"
            )
        if not (facts := _facts(pool, change, current)):
            return current
        try:
            await journal.record(*facts, actor=actor, version=head.version)
        except VersionConflict:
            continue
        return pool_state(journal.view, pool).settings
    raise StoreUnavailable(f"others are changing the settings of pool {pool} at this moment: try again")


def _facts(pool: str, change: SettingsChange, current: Settings) -> list[AnyFact]:
    given = {name: getattr(change, name) for name in SettingsChange.__struct_fields__ if name != "parameters"}
    new = {name: value for name, value in given.items() if value is not UNSET and value != getattr(current, name)}
    facts: list[AnyFact] = []
    if (ratelimit_s := new.pop("ratelimit_s", None)) is not None:
        facts.append(RatelimitChanged(pool=pool, ratelimit_s=ratelimit_s))
    kept = {name: new.pop(name) for name in _RETENTION if name in new}
    if kept:
        facts.append(RetentionChanged(pool=pool, **kept))
    parameters = changed_parameters(change.parameters or {}, current)
    if new or parameters:
        facts.append(PolicyChanged(pool=pool, parameters=parameters, **new))
    return facts


def _refuse_unknown(change: SettingsChange) -> None:
    choose: Mapping[str, Callable[[str], object]] = {"policy": POLICIES.choose, "placer": PLACERS.choose}
    for field, choice in choose.items():
        if isinstance(name := getattr(change, field), str):
            try:
                choice(name)
            except InvalidInput as error:
                raise InvalidField(field, str(error)) from error
