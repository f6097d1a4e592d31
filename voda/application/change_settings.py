"""Changes the settings of a pool.

Rule: a change is made to the settings that the caller saw, or refused; a setting that stays as it is, is not recorded.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET, UnsetType, defstruct
from msgspec.structs import asdict, fields

from voda.application.journal import Journal
from voda.application.lookup import pool_state
from voda.domain.errors import InvalidField, InvalidInput, PreconditionFailed, StoreUnavailable, VersionConflict
from voda.domain.settings import Parameters, Settings, SettingsPatch, SettingValue, checked_fair_share
from voda.events.types import SettingsChanged
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.policies.toolkit.parameters import FIELD, changed_parameters, check_parameters, check_value

_ATTEMPTS = 5
SettingsChange = defstruct(
    "SettingsChange",
    [(field.name, field.type | UnsetType, UNSET) for field in fields(Settings)],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    namespace={"__doc__": "New settings of a pool: a JSON merge patch."},
)
_CHOICES: Final[Mapping[str, Callable[[str], str]]] = {
    "policy": lambda name: POLICIES.choose(name).name,
    "placer": lambda name: PLACERS.choose(name).name,
    "fair_share": checked_fair_share,
}


def given_settings(change: Any) -> SettingsPatch:
    """Return what a SettingsChange changes."""
    return {name: value for name, value in asdict(change).items() if value is not UNSET}


def check_settings(patch: Mapping[str, object]) -> SettingsPatch:
    """Return a patch in the types of the settings and within their bounds, or raise InvalidField."""
    return {name: check_setting(name, value, name) for name, value in patch.items()}


def check_setting(name: str, value: object, path: str) -> SettingValue:
    """Return a value of the setting in its type, within its bounds; else raise InvalidField, which names the path."""
    checked: SettingValue = check_value(Settings, name, value, path)
    if isinstance(checked, Mapping):
        return check_parameters(checked)
    try:
        return _CHOICES[name](str(checked)) if name in _CHOICES else checked
    except InvalidInput as error:
        raise InvalidField(path, str(error)) from error


def new_settings(patch: SettingsPatch, current: Settings) -> SettingsPatch:
    """Return those settings of a checked patch that are not in force."""
    given = dict(patch)
    wanted: Parameters = given.pop(FIELD, {})  # type: ignore[assignment]  # it has been checked
    new = {name: value for name, value in given.items() if value != getattr(current, name)}
    parameters = changed_parameters(wanted, current)
    return {**new, FIELD: parameters} if parameters else new


async def change_settings(
    journal: Journal,
    pool: str,
    change: Mapping[str, object],
    *,
    actor: str,
    is_expected: Callable[[Settings], bool] = lambda _settings: True,
) -> Settings:
    """Record a change of the pool's settings, and return the settings in force.

    Raises:
        InvalidField: a policy, placer or parameter is unknown, or a value is out of its bounds.
        PreconditionFailed: the settings that would be changed are not those that the caller saw (`is_expected`).
        StoreUnavailable: others keep changing them, or the log does not answer.
    """
    patch = check_settings(change)
    for _ in range(_ATTEMPTS):
        head = await journal.store.head(f"settings.{pool}")
        # Now the view is at least as new as the head; if it is newer, the append is refused.
        await journal.catch_up()
        current = pool_state(journal.view, pool).settings
        if not is_expected(current):
            raise PreconditionFailed(
                f"the settings of pool {pool} have changed since you read them: get them again, and decide again"
            )
        if not (new := new_settings(patch, current)):
            return current
        try:
            await journal.record(SettingsChanged(pool=pool, settings=new), actor=actor, version=head.version)
        except VersionConflict:
            continue
        return pool_state(journal.view, pool).settings
    raise StoreUnavailable(f"others are changing the settings of pool {pool} at this moment: try again")
