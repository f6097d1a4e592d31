"""Leadership: campaigns for the Lease, leads while it holds it, and hands it over.

1. Follows the Lease, and stands by until it may be taken (see voda.app.election).
2. Takes it, claims the epoch in the log, and leads; renews it meanwhile.
3. When it is lost: stops what leads, then releases the Lease, then campaigns again.

Rules: what leads is stopped before the Lease may be another candidate's, and the Lease is released only once it has
stopped; spans are measured on the event loop's steady clock.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from voda.app.election import (
    Candidacy,
    ElectionTimeouts,
    ObservedLease,
    ReadLease,
    RenewLease,
    StepDown,
    TakeLease,
    Term,
    WaitUntil,
    loss_reason,
    next_epoch,
    next_step,
    observed_again,
)
from voda.concurrency import single_error
from voda.controller.leader_epochs import LeaderEpochs
from voda.domain.errors import (
    ChangedMeanwhile,
    ClusterUnavailable,
    Fenced,
    StoreNotWritable,
    TransientError,
    VodaError,
)
from voda.domain.lease import Lease, LeaseStore
from voda.metrics import LEASE_RENEWALS_FAILED, NO_TELEMETRY, Telemetry

_log = logging.getLogger(__name__)

Lead = Callable[[int], Coroutine[Any, Any, None]]
"""epoch -> leads until cancelled."""
StandBy = Callable[[], Coroutine[Any, Any, None]]
"""Keeps warm until cancelled."""
_REQUEST_S: Final = 3.0
_RELEASE_S: Final = 2.0
_PAUSE_S: Final = 0.1
"""Before another call at once: whatever the server answers, it is not called without pause."""


class Leadership:
    """One candidate.

    Args:
        lease: the Lease.
        epochs: of the log.
        me: identity of this very process, never used by another one.
        timings: the same for all candidates.
        telemetry: counts the renewals that fail.
    """

    def __init__(
        self,
        lease: LeaseStore,
        epochs: LeaderEpochs,
        me: str,
        *,
        timings: ElectionTimeouts | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self.me = me
        self.failure = ""
        """Why the Lease is not known or not renewed, one sentence; empty while it is, whoever holds it."""
        self._keeper = lease
        self._epochs = epochs
        self._timings = timings or ElectionTimeouts()
        self._telemetry = telemetry
        self._wake = asyncio.Event()
        self._lease_view = ObservedLease()
        self._term: Term | None = None
        self._retry_at = -math.inf
        self._is_in_doubt = False
        self._may_hold = False
        """Whether the Lease is ours, or may be: an attempt to take it got no answer."""

    @property
    def is_leading(self) -> bool:
        """Whether this candidate may act as the leader at this moment; only on the event loop."""
        return self._term is not None and _now() < self._term.renewed_at + self._timings.renew_deadline_s

    @property
    def epoch(self) -> int:
        """Return the epoch of this leadership; 0 while it does not lead."""
        return self._term.epoch if self._term else 0

    @property
    def leader(self) -> str:
        """Identity of the holder of the Lease, as last seen; empty where none is known."""
        return self._lease_view.lease.holder if self._lease_view.lease else ""

    async def run(self, lead: Lead, stand_by: StandBy | None = None) -> None:
        """Campaign, lead and campaign again, until cancelled; then hand over.

        Args:
            lead: called with the epoch at each acquisition. It is cancelled, and waited for, when the Lease is lost.
                Where it returns or raises Fenced, the Lease is given up, and campaigned for again after a pause.
            stand_by: runs while another candidate leads; never beside `lead`.

        Raises:
            ExceptionGroup: of what `lead` or `stand_by` raised.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch())
                while True:
                    await self._wait_for_the_lead(stand_by or asyncio.Event().wait)
                    await self._serve(lead)
                    await asyncio.sleep(self._timings.retry_s)
        finally:
            # It may end between taking the Lease and leading.
            self._term = None
            await self._release()

    async def _wait_for_the_lead(self, stand_by: Callable[[], Coroutine[Any, Any, object]]) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(stand_by())
            while self._term is None:
                await self._step()
            waiting.cancel()

    async def _serve(self, lead: Lead) -> None:
        """Lead until the Lease is lost, or `lead` ends."""
        assert self._term is not None, "only a leader leads"
        epoch, reason = self._term.epoch, "cancelled"
        _log.info("leads lease=%s epoch=%d me=%s", self._keeper.key, epoch, self.me)
        try:
            async with asyncio.TaskGroup() as group:
                leading = group.create_task(self._lead(lead, epoch))
                leading.add_done_callback(lambda _: self._wake.set())
                reason = await self._hold(leading)
                leading.cancel()
        except* Fenced as errors:
            reason = f"fenced: {single_error(errors)}"
        finally:
            self._term = None
            _log.info("stepped down lease=%s epoch=%d reason=%s", self._keeper.key, epoch, reason)
            await self._release()
        # A group whose task fails while it is cancelled from outside tells of the failure alone.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError

    async def _lead(self, lead: Lead, epoch: int) -> None:
        try:
            await self._epochs.claim(epoch, self.me)
        except (TransientError, StoreNotWritable) as error:
            # Perhaps another replica reaches the log.
            self._fail(error)
            return
        await lead(epoch)

    async def _hold(self, leading: asyncio.Task[None]) -> str:
        """Keep the Lease for as long as possible, and return why that is over."""
        while not leading.done():
            if reason := await self._step():
                return reason
        return "it was given up"

    async def _step(self) -> str:
        """Do what is due, or wait; return why the leadership is over, empty while it is not."""
        self._wake.clear()
        state = Candidacy(
            me=self.me, view=self._lease_view, term=self._term, retry_at=self._retry_at, is_in_doubt=self._is_in_doubt
        )
        match next_step(state, _now(), self._timings):
            case WaitUntil(until=until):
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await self._wake.wait()
            case ReadLease():
                await self._call(self._keeper.read)
            case TakeLease():
                await self._take()
            case RenewLease():
                await self._renew()
            case StepDown(reason=reason):
                # At once: `is_leading` must not say yes while the tasks are being stopped.
                self._term = None
                return reason
        return ""

    async def _take(self) -> None:
        view = self._lease_view
        try:
            epoch = next_epoch(view, await self._epochs.highest())
        except (TransientError, StoreNotWritable) as error:
            self._fail(error)
            return
        began, duration_s = _now(), self._timings.duration_s
        self._may_hold = True
        take = partial(self._keeper.take, view.lease, holder=self.me, transitions=epoch, duration_s=duration_s)
        if await self._call(take):
            self._term = Term(epoch=epoch, renewed_at=began)

    async def _renew(self) -> None:
        term, lease, began = self._term, self._lease_view.lease, _now()
        assert term is not None and lease is not None, "only a leader renews"  # noqa: PT018 - one claim
        left_s = term.renewed_at + self._timings.renew_deadline_s - began
        succeeded = await self._call(lambda: self._keeper.renew(lease), within_s=min(_REQUEST_S, left_s))
        if succeeded:
            self._term = replace(term, renewed_at=began)
        else:
            self._telemetry.count(LEASE_RENEWALS_FAILED)

    async def _call(self, request: Callable[[], Awaitable[Lease | None]], *, within_s: float = _REQUEST_S) -> bool:
        """Call the server and learn from its answer; return whether the call succeeded."""
        try:
            async with asyncio.timeout(within_s):
                lease = await request()
        except ChangedMeanwhile:
            self._is_in_doubt = True
            self._retry_at = _now() + _PAUSE_S
            return False
        except (VodaError, TimeoutError) as error:
            self._fail(error if str(error) else TimeoutError(f"no answer within {within_s:.2g} s"))
            return False
        self._lease_view = observed_again(self._lease_view, lease, _now())
        self._is_in_doubt, self._retry_at, self.failure = False, -math.inf, ""
        self._may_hold = lease is not None and lease.holder == self.me
        return True

    async def _watch(self) -> None:
        """Follow the Lease as it changes; without a watch everything still works, later."""
        while True:
            pause_s = _PAUSE_S
            try:
                async with aclosing(self._keeper.watch()) as leases:
                    async for lease in leases:
                        self._see(lease)
            except VodaError as error:
                _log.debug("watch broke lease=%s reason=%s", self._keeper.key, error)
                pause_s = self._timings.retry_s
            await asyncio.sleep(pause_s)

    def _see(self, lease: Lease | None) -> None:
        if self._term is None:
            self._lease_view = observed_again(self._lease_view, lease, _now())
        elif loss_reason(lease, self.me, self._term.epoch):
            # The watch may be late, and show the time before the Lease was taken.
            self._is_in_doubt = True
        self._wake.set()

    async def _release(self) -> None:
        """Give the Lease up, if it may be held, so that others need not wait until it expires."""
        if not self._may_hold:
            return
        self._may_hold = False
        lease = self._lease_view.lease
        with suppress(VodaError, TimeoutError):
            async with asyncio.timeout(_RELEASE_S):
                if lease is None or lease.holder != self.me:
                    lease = await self._keeper.read()
                while lease is not None and lease.holder == self.me:
                    try:
                        await self._keeper.release(lease)
                    except ChangedMeanwhile:
                        # A renewal that was broken off may have succeeded.
                        lease = await self._keeper.read()
                    else:
                        return

    def _fail(self, error: Exception) -> None:
        before, self.failure = self.failure, f"lease {self._keeper.key}: {error}"
        if self.failure != before:
            _log.warning("lease not reached lease=%s reason=%s", self._keeper.key, error)
        asked_s = error.retry_after_s if isinstance(error, ClusterUnavailable) else 0.0
        self._retry_at = _now() + max(self._timings.retry_s, asked_s)


def _now() -> float:
    # Steady, unlike the time of day: a clock that is set must not end a leadership, nor begin one.
    return asyncio.get_running_loop().time()
