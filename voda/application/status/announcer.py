"""Sends announcements to the cluster, as Kubernetes Events.

Rules: nobody waits for it; when there is too much to tell, what is oldest is dropped, and one job cannot crowd out the
others; what cannot be told within some minutes is not told at all.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import Any, Final, Literal, NamedTuple

from voda.application.status.rate_limiter import RateLimiter
from voda.clock import Clock
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.client.errors import Conflict
from voda.cluster.kubernetes.reporting.kube_events import Announcement, Reason, event_object, events_path
from voda.concurrency import survived
from voda.domain.errors import ActionRefused, ClusterUnavailable
from voda.metrics import ANNOUNCEMENTS, NO_TELEMETRY, Telemetry

_log = logging.getLogger(__name__)

RECENT_S: Final = 300.0
"""Older news is not told any more."""
_MOST_QUEUED: Final = 2_000
_BURST: Final = 25
"""Announcements of one object that are told at once."""
_REFILL_S: Final = 30.0
"""After which an object that told too much may tell one more."""
_MOST_COUNTED: Final = 20_000
Outcome = Literal["sent", "crowded", "overflowed", "late", "refused"]
"""What became of an announcement: told; dropped because its object had told too much, because too many were queued, or
because it was too old; refused by the server."""
_ENDS: Final[frozenset[Reason]] = frozenset({"Completed", "Failed", "Canceled"})


_Key = tuple[str, Reason, str]
"""uid of the object, reason, key."""


class _Told(NamedTuple):
    """How much an object may still tell."""

    left: float
    at: float


class Announcer:
    """A queue of announcements, and the one who sends them.

    Args:
        api: where they go.
        clock: of their age.
        per_s: how many a second.
        retry_s: pause after the server did not answer.
        telemetry: counts what became of each.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        *,
        per_s: float,
        retry_s: float = 2.0,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._api = api
        self._telemetry = telemetry
        self._clock = clock
        self._retry_s = retry_s
        self._pace = RateLimiter(per_s, clock)
        self._queue: OrderedDict[_Key, Announcement] = OrderedDict()
        self._left: dict[str, _Told] = {}
        """uid -> how much may still be told."""
        self._wake = asyncio.Event()
        self._trouble = ""

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, told: Announcement) -> None:
        """Have something told, unless too much is."""
        key = (told.subject.uid, told.reason, told.key)
        if key in self._queue:
            return
        if told.reason not in _ENDS and not self._may_tell(told):
            self._announced("crowded")
            return
        self._queue[key] = told
        while len(self._queue) > _MOST_QUEUED:
            self._queue.popitem(last=False)
            self._announced("overflowed")
        self._wake.set()

    async def run(self) -> None:
        """Send what is queued, for ever."""
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            key, told = self._queue.popitem(last=False)
            if told.at < self._clock.now() - RECENT_S:
                self._announced("late")
                continue
            await self._pace.turn()
            with survived("announcing", told.subject.name):
                await self._try(key, told)

    async def _try(self, key: _Key, told: Announcement) -> None:
        try:
            await self._send(told)
        except ClusterUnavailable as error:
            # Behind all others: what keeps this one from being told may not concern them.
            self._queue[key] = told
            self._note(str(error))
            await asyncio.sleep(max(self._retry_s, getattr(error, "retry_after_s", 0.0)))

    async def _send(self, told: Announcement) -> None:
        try:
            await self._api.create(events_path(told.subject.namespace), event_object(told), dict[str, Any])
        except Conflict:
            # Told before: by a leader before this one, or by a request whose answer was lost.
            pass
        except ActionRefused as error:
            # A namespace that is going takes no Events; nothing that depends on them is lost.
            self._note(str(error))
            self._announced("refused")
            return
        self._announced("sent")
        self._trouble = ""

    def _announced(self, outcome: Outcome) -> None:
        self._telemetry.count(ANNOUNCEMENTS, outcome)

    def _note(self, trouble: str) -> None:
        """Log what is wrong, once until it is right again."""
        if not self._trouble:
            _log.warning("events are not told reason=%s", trouble)
        self._trouble = trouble

    def _may_tell(self, told: Announcement) -> bool:
        """Say whether an object has not told too much of late, and count this one."""
        uid, at = told.subject.uid, told.at
        left, counted_at = self._left.pop(uid, _Told(_BURST, at))
        left = min(_BURST, left + max(0.0, at - counted_at) / _REFILL_S)
        self._left[uid] = _Told(left - 1.0 if left >= 1.0 else left, at)
        if len(self._left) > _MOST_COUNTED:
            del self._left[next(iter(self._left))]
        return left >= 1.0
