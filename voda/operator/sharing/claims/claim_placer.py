"""Places pods that claim parts of GPUs (dynamic resource allocation): voda chooses, kube-scheduler allocates.

1. The accounts of nodes come to say what claims were given (`share_reconciler`).
2. `RoundPlan` says what is to be done of the pods that wait, the oldest first; here it is done: `share.assigned` is
   appended; then the pod's claims select these GPUs, and its gate is lifted. A pod that finds no room is told in an
   Event what is left.
3. Pods request GPUs that jobs can spare (`requests`). Claims that nothing uses any more are deleted.

Level-triggered: each round looks at what there is. Rules: a share is in the log before a claim selects its GPU, at the
version of the account that it was chosen by; every action may be done twice, and whoever dies in between leaves a share
by which the next round goes on; the API server and the log bound their calls in time.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.chosen_claims import replaced_claims
from voda.concurrency import log_unexpected
from voda.domain.errors import ActionRefused
from voda.domain.reasons.pods import ShareLoss
from voda.events.types import ShareAssigned, ShareReleased, ShareRequestWithdrawn
from voda.operator.sharing.claims.allotment import Allotment, ChosenGpus, Claimant, ClosedAccounts, NoRoom
from voda.operator.sharing.claims.attempt import NEW, PodAttempt
from voda.operator.sharing.claims.claimants import Claimants
from voda.operator.sharing.claims.claimed_shares import ACTOR, ClaimedShares
from voda.operator.sharing.claims.requests import (
    RequestFact,
    after_withdrawal,
    ended_requests,
    new_requests,
    request_at,
    with_refused,
)
from voda.operator.sharing.claims.round import Give, GiveBack, RoundPlan, Tell, Unname, UnplacedPod
from voda.operator.sharing.share_reconciler import ShareReconciler, record_shares, succeeds, version_of
from voda.operator.status.kube_events import Announcement, Subject
from voda.projections.cluster.shares import ShareAccounts
from voda.sharing.rating import GpuChooser, Rater

_LOOK_S: Final = 0.05
_LOOK_ANYWAY_S: Final = 5.0
"""Also where nothing has changed: time passes, and calls fail."""
_REQUESTS_S: Final = 1.0
"""How often requests are looked at: that takes tens of milliseconds where there are thousands of nodes and pods."""
_PODS_AT_ONCE: Final = 25
"""Then others get a turn."""
_CALLS_AT_ONCE: Final = 32


@dataclass(kw_only=True)
class ClaimPlacer:
    """Runs while this replica leads."""

    claimants: Claimants
    rater: Rater
    announce: Callable[[Announcement], None]
    _memory: dict[str, PodAttempt] = field(default_factory=dict, init=False)
    """By uid of the pod."""
    _closed: ClosedAccounts = field(default_factory=ClosedAccounts, init=False)
    _requests_at: float = field(default=float("inf"), init=False)
    """When requests are due, though nothing changes."""
    _requests_looked_at: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._chooser = GpuChooser(self.rater)
        self.accounts: ClaimedShares = self.claimants.accounts
        self._journal = self.accounts.journal
        self._reconciler = ShareReconciler(journal=self._journal, source=self.accounts, rater=self.rater)
        self._calls = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def run(self) -> None:
        """Look whenever something has changed, until cancelled."""
        gpus, seen, looked_at = self.accounts.ledger, (-1, -1, -1), 0.0
        tidying: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            while True:
                now = self._journal.clock.now()
                state = self.accounts.pods.changes, gpus.changes, self._journal.view.position
                if now - looked_at >= _LOOK_ANYWAY_S:
                    looked_at, seen = now, (-1, -1, -1)
                    self.accounts.mark_all()
                    if tidying is None or tidying.done():
                        tidying = group.create_task(self._tidy())
                if state != seen or now >= self._requests_at:
                    seen = state
                    changed, gpus.changed = gpus.changed, set()
                    gpus.changed.update(await self._reconciler.correct(changed))
                    with log_unexpected("placing pods that claim GPUs", "shares"):
                        for each in await self._look(now):
                            group.create_task(self._bind(each))
                await asyncio.sleep(_LOOK_S)

    async def _look(self, now: float) -> Sequence[ChosenGpus]:
        """Do what is to be done now, but for claims: return the GPUs in the log that these are to select."""
        # What was read of a pod is out of date once its claims have changed.
        changing = {uid for uid, each in self._memory.items() if each.is_under_way}
        waiting = [each async for each in self._waiting() if each.uid not in changing]
        there = self.accounts.pods.by_uid
        self._memory = {uid: each for uid, each in self._memory.items() if uid in there or each.is_under_way}
        plan = await self._planned(waiting, now)
        self._memory |= with_refused(plan.refused, plan.memory, now)
        given, new = list[ChosenGpus](), defaultdict[str, list[Give]](list)
        async with asyncio.TaskGroup() as group:
            for action in plan.actions:
                match action:
                    case Tell(pod, reason):
                        self._tell(pod, reason, now)
                    case Unname(pod):
                        group.create_task(succeeds(self._unname(pod), pod.metadata.key))
                    case GiveBack(gpus):
                        group.create_task(succeeds(self._give_back(action, now), gpus.claimant.key))
                    case Give(gpus):
                        given.append(gpus)
                        if self._shares.node_of(gpus.claimant.uid) != gpus.node:
                            new[gpus.node].append(action)
            for node, those in new.items():
                group.create_task(succeeds(self._assign(node, those), node))
        await self._request(plan.refused, now)
        recorded = [each for each in given if self.claimants.has(each)]
        for each in recorded:
            self._remember(each.claimant.uid, is_under_way=True)
        return recorded

    async def _planned(self, waiting: Sequence[UnplacedPod], now: float) -> RoundPlan:
        """Decide what is to be done; what is odd about one pod keeps nobody else from its GPUs."""
        nodes = self.claimants.open_nodes() if waiting else {}
        plan = RoundPlan(Allotment(self._chooser, nodes, self._closed), self._memory, now)
        for number, each in enumerate(plan.in_turn(waiting)):
            if number % _PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if plan.is_full:
                break
            with log_unexpected("choosing GPUs", each.pod.metadata.key):
                plan.look_at(each)
        return plan

    async def _waiting(self) -> AsyncIterator[UnplacedPod]:
        """Yield what is known of the pods that wait; what is odd about one keeps nobody else from its GPUs."""
        for number, pod in enumerate(self.accounts.pods.waiting()):
            if number % _PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
            with log_unexpected("reading what pods claim", pod.metadata.key):
                yield self.claimants.waiting_pod(pod)

    # ---- actions

    async def _assign(self, node: str, given: Sequence[Give]) -> None:
        """Record the shares of pods on one node, after those that they had elsewhere are given back."""
        version = version_of(self._shares, node)
        for each in given:
            if each.instead_of:
                await self._release(each.gpus.claimant, each.instead_of, each.reason)
        pods = [(each.gpus.claimant, each.gpus.containers) for each in given]
        facts = [
            ShareAssigned(node=node, pod_uid=pod.uid, pod=pod.key, containers=containers) for pod, containers in pods
        ]
        await record_shares(self._journal, *facts, actor=ACTOR, version=version)

    async def _give_back(self, action: GiveBack, now: float) -> None:
        claimant, node = action.gpus.claimant, action.gpus.node
        await self._release(claimant, node, action.reason)
        attempt = self._attempt(claimant.uid)
        if not action.are_named:
            self._put(claimant.uid, attempt.left_out(node, now))
            return
        self._put(claimant.uid, attempt.gave_back(claimant.pod, node, now))
        if claimant.pod.status.nominated_node_name == node:
            await self.accounts.binding.keep_no_room(claimant.pod)

    async def _unname(self, pod: Pod) -> None:
        """Have a pod name no GPUs, now that its claims are gone: kube-controller-manager then sees to them."""
        self.claimants.inventory.update_pod(await self.accounts.binding.unname(pod))

    async def _release(self, claimant: Claimant, node: str, reason: ShareLoss | None) -> None:
        fact = ShareReleased(node=node, pod_uid=claimant.uid, pod=claimant.key, reason=reason)
        await record_shares(self._journal, fact, actor=ACTOR, version=version_of(self._shares, node))

    def _tell(self, pod: Pod, reason: str, now: float) -> None:
        meta = pod.metadata
        if self._attempt(meta.uid).told != reason:
            self._remember(meta.uid, told=reason)
            subject = Subject(api_version="v1", kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
            self.announce(
                Announcement(subject=subject, reason="WaitsForGpus", message=reason, at=now, key=f"{now} {reason}")
            )

    async def _bind(self, chosen: ChosenGpus) -> None:
        """Have the claims of a pod select its GPUs; where that fails, a later round tries again."""
        uid, key, is_done = chosen.claimant.uid, chosen.claimant.key, False
        try:
            async with self._calls:
                is_done = await succeeds(self._pin(chosen), key)
        finally:
            self._remember(uid, is_under_way=False)
        if is_done:
            self._put(uid, replace(self._attempt(uid).bound(), told=""))
        elif chosen.renewals:
            self._remember(uid, not_renewed=self._attempt(uid).not_renewed + 1)
        else:
            self._put(uid, self._attempt(uid).failed(self._journal.clock.now()))

    async def _pin(self, chosen: ChosenGpus) -> None:
        uid = chosen.claimant.uid
        if self.claimants.is_bound(chosen):
            # It gets GPUs again that it had given back: what was said of it is of these.
            return
        try:
            pod = await self.accounts.binding.pin(chosen.claimant.pod, self.claimants.claims(chosen), chosen.node)
        except ActionRefused as error:
            if chosen.renewals:
                raise
            now = self._journal.clock.now()
            self._put(uid, self._attempt(uid).refused(now))
            why = f"GPUs were chosen on {chosen.node}, but the API server refuses to name them in its claims: {error}"
            self._tell(chosen.claimant.pod, why, now)
            raise
        # The mirror may be behind, and the next round would do it again.
        self.claimants.inventory.update_pod(pod)
        if not chosen.renewals:
            self._put(uid, self._attempt(uid).named(pod))

    # ---- requests, and what is left over

    async def _request(self, refused: Sequence[NoRoom], now: float) -> None:
        """Record the requests that begin and end now."""
        requests, looked_at = self.claimants.requests(), self._requests_looked_at
        # A clock that was set back closes this for no longer.
        if looked_at <= now < looked_at + _REQUESTS_S and (refused or requests):
            self._requests_at = looked_at + _REQUESTS_S
            return
        self._requests_looked_at = now
        able = [each for each in refused if each.claimant.uid not in requests]
        at = {each.claimant.uid: request_at(self._attempt(each.claimant.uid)) for each in able}
        due = [each for each in able if at[each.claimant.uid] <= now]
        later = (instant for instant in at.values() if instant > now)
        self._requests_at = max(now + _REQUESTS_S, min(later, default=float("inf")))
        if not (requests or due):
            return
        jobs, facts = self.claimants.job_gpus(now), defaultdict[str, list[RequestFact]](list)
        waiting = {pod.metadata.uid for pod in self.accounts.pods.waiting()}
        taken = {node for node, _ in requests.values()}
        for ended in ended_requests(requests, waiting, jobs, now):
            facts[ended.node].append(ended)
        for begun in new_requests(due, taken, jobs, self._memory):
            facts[begun.node].append(begun)
        async with asyncio.TaskGroup() as group:
            for node, those in facts.items():
                group.create_task(succeeds(self._record(node, those, now), node))

    async def _record(self, node: str, facts: Sequence[RequestFact], now: float) -> None:
        await record_shares(self._journal, *facts, actor=ACTOR, version=version_of(self._shares, node))
        for fact in facts:
            if isinstance(fact, ShareRequestWithdrawn):
                self._put(fact.pod_uid, after_withdrawal(self._attempt(fact.pod_uid), fact, now))

    async def _tidy(self) -> None:
        """Delete the claims of pods on nodes whose place was taken by those that select GPUs."""
        with log_unexpected("deleting claims", "shares"):
            for pod in list(self.accounts.pods.by_uid.values()):
                for claim in replaced_claims(pod, self.accounts.ledger.claims_of(pod.metadata.uid)):
                    async with self._calls:
                        await succeeds(self.accounts.binding.delete(claim), claim.metadata.key)

    # ---- memory

    def _attempt(self, uid: str) -> PodAttempt:
        return self._memory.get(uid, NEW)

    def _put(self, uid: str, attempt: PodAttempt) -> None:
        self._memory[uid] = attempt

    def _remember(self, uid: str, **changes: Any) -> None:
        self._put(uid, replace(self._attempt(uid), **changes))

    @property
    def _shares(self) -> ShareAccounts:
        return self.accounts.shares
