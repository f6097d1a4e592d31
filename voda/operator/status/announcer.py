"""Sends announcements to the cluster, as Kubernetes Events.

Rules: nothing waits for it; when the queue is full the oldest is dropped, and one job cannot crowd out the others;
what cannot be sent within some minutes is not sent at all.
"""

import asyncio
import logging
from typing import Any, Final, Literal, NamedTuple

from voda.clock import Clock
from voda.concurrency import log_unexpected
from voda.domain.errors import ActionRefused, ClusterUnavailable
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Conflict
from voda.metrics import ANNOUNCEMENTS, NO_TELEMETRY, Telemetry
from voda.operator.status.kube_events import Announcement, Reason, event_object, events_path
from voda.operator.status.rate_limiter import RateLimiter, TroubleLog
from voda.work_queue import WorkQueue

_log = logging.getLogger(__name__)

RECENT_S: Final = 300.0
"""Older announcements are not sent any more."""
_MOST_QUEUED: Final = 2_000
_BURST: Final = 25
"""Announcements about one object that are sent at once."""
_REFILL_S: Final = 30.0
"""After which an object that had too many may have one more."""
_MOST_COUNTED: Final = 20_000
Outcome = Literal["sent", "crowded", "overflowed", "late", "refused"]
"""What became of an announcement: sent; dropped because its object had too many, because too many were queued, or
because it was too old; refused by the server."""
_ENDS: Final[frozenset[Reason]] = frozenset({"Completed", "Failed", "Canceled"})


_Key = tuple[str, Reason, str]
"""uid of the object, reason, key."""


class _Budget(NamedTuple):
    """How many announcements about an object may still be sent."""

    left: float
    at: float


class Announcer:
    """A queue of announcements that is sent at a limited rate; it pauses after the server did not answer."""

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
        self._limiter = RateLimiter(per_s, clock)
        self._queued: dict[_Key, Announcement] = {}
        self._queue = WorkQueue[_Key](clock)
        self._budgets: dict[str, _Budget] = {}
        """uid -> what is left of its budget."""
        self._trouble = TroubleLog(_log, "events are not sent")

    def __len__(self) -> int:
        return len(self._queued)

    def put(self, announcement: Announcement) -> None:
        """Queue an announcement, unless there are too many."""
        key = (announcement.subject.uid, announcement.reason, announcement.key)
        if key in self._queued:
            return
        if announcement.reason not in _ENDS and not self._is_within_budget(announcement):
            self._announced("crowded")
            return
        self._add(key, announcement)
        while len(self._queued) > _MOST_QUEUED:
            self._drop(next(iter(self._queued)))
            self._announced("overflowed")

    def _add(self, key: _Key, announcement: Announcement) -> None:
        self._queued[key] = announcement
        self._queue.add(key)

    def _drop(self, key: _Key) -> None:
        del self._queued[key]
        self._queue.discard(key)

    async def run(self) -> None:
        while True:
            key = await self._queue.take()
            announcement = self._queued.pop(key)
            if announcement.at < self._clock.now() - RECENT_S:
                self._announced("late")
                continue
            await self._limiter.turn()
            with log_unexpected("announcing", announcement.subject.name):
                await self._try(key, announcement)

    async def _try(self, key: _Key, announcement: Announcement) -> None:
        try:
            await self._send(announcement)
        except ClusterUnavailable as error:
            # Behind all others: what keeps this one from being sent may not concern them.
            self._add(key, announcement)
            self._trouble.failed(error)
            await asyncio.sleep(max(self._retry_s, error.retry_after_s))

    def _announced(self, outcome: Outcome) -> None:
        self._telemetry.count(ANNOUNCEMENTS, outcome)

    async def _send(self, announcement: Announcement) -> None:
        try:
            await self._api.create(
                events_path(announcement.subject.namespace), event_object(announcement), dict[str, Any]
            )
        except Conflict:
            # It was sent before: by an earlier leader, or by a request whose answer was lost.
            pass
        except ActionRefused as error:
            # A namespace that is going takes no Events; nothing that depends on them is lost.
            self._trouble.failed(error)
            self._announced("refused")
            return
        self._announced("sent")
        self._trouble.succeeded()

    def _is_within_budget(self, announcement: Announcement) -> bool:
        """Say whether an object had not too many of late, and count this one."""
        uid, at = announcement.subject.uid, announcement.at
        left, counted_at = self._budgets.pop(uid, _Budget(_BURST, at))
        left = min(_BURST, left + max(0.0, at - counted_at) / _REFILL_S)
        self._budgets[uid] = _Budget(left - 1.0 if left >= 1.0 else left, at)
        if len(self._budgets) > _MOST_COUNTED:
            del self._budgets[next(iter(self._budgets))]
        return left >= 1.0
