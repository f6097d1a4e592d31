"""Pods whose claims cannot be made to select their cards (a quota forbids them, say): when each is tried again.

For a minute such a pod keeps its cards. Then others get them: it is left out for a while, and chooses after the others.

Rules: in memory alone, a new leader tries again; a server that does not answer says nothing of a pod.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from voda.backoff import Backoff

_FIRST_BACKOFF_S: Final = 0.1
_LONGEST_BACKOFF_S: Final = 60.0
KEPT_S: Final = 60.0
"""For so long a pod keeps cards that its claims cannot be made to select."""
_LONGEST_LEFT_OUT_S: Final = 600.0


@dataclass
class BindFailures:
    """See the module."""

    _backoff: Backoff = field(
        default_factory=lambda: Backoff(first_s=_FIRST_BACKOFF_S, longest_s=_LONGEST_BACKOFF_S), init=False
    )
    _since: dict[str, float] = field(default_factory=dict, init=False)
    """Uid of a pod that failed -> when it was refused first in a row; infinity: it was not."""
    _last: set[str] = field(default_factory=set, init=False)
    """Uids of pods that have lost their cards for it."""

    def failed(self, uid: str, now: float) -> None:
        """Note that a try failed, whatever of: the next one comes later."""
        self._since.setdefault(uid, math.inf)
        self._backoff.failed(uid, now)

    def refused(self, uid: str, now: float) -> None:
        """Note that it failed because of the pod or its claims."""
        self._since[uid] = min(now, self._since.get(uid, now))

    def succeeded(self, uid: str) -> None:
        self._since.pop(uid, None)
        self._last.discard(uid)
        self._backoff.reset(uid)

    def is_due(self, uid: str, now: float) -> bool:
        return self._backoff.is_due(uid, now)

    def is_hopeless(self, uid: str, now: float) -> bool:
        """Say whether it has been refused for so long that others are to have its cards."""
        return now - self._since.get(uid, now) >= KEPT_S

    def gave_up(self, uid: str, now: float) -> None:
        """Note that a pod has lost its cards: it is left out for as long again as it was refused."""
        self._last.add(uid)
        refused_s = now - self._since.get(uid, now)
        self._backoff.failed(uid, now, at_least_s=min(refused_s, _LONGEST_LEFT_OUT_S))

    def is_last(self, uid: str) -> bool:
        """Say whether a pod chooses after the others."""
        return uid in self._last

    def forget(self, there: Collection[str]) -> None:
        """Forget the pods that are not there."""
        for uid in [uid for uid in self._since if uid not in there]:
            self.succeeded(uid)
