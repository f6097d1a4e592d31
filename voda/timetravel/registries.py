"""Where the policies and placers that a log names come from."""

from collections.abc import Callable

from msgspec import Struct

from voda.placement import PLACERS, Placer
from voda.policies import POLICIES, Policy


class Registries(Struct, frozen=True, kw_only=True):
    """Both raise InvalidInput for a name they do not know; by default those that voda brings along."""

    policies: Callable[[str], Policy] = POLICIES.choose
    placers: Callable[[str], Placer] = PLACERS.choose


DEFAULT = Registries()
