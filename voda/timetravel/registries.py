"""Where the policies and placers that a log names come from."""

from collections.abc import Callable

from msgspec import Struct

from voda.placement.base import Placer
from voda.placement.registry import placer
from voda.policies.base import Policy
from voda.policies.registry import policy


class Registries(Struct, frozen=True, kw_only=True):
    """Both raise InvalidInput for a name they do not know; by default those that voda brings along."""

    policies: Callable[[str], Policy] = policy
    placers: Callable[[str], Placer] = placer


DEFAULT = Registries()
