"""Places pods that claim parts of cards (dynamic resource allocation): voda chooses, kube-scheduler allocates.

1. The accounts of nodes come to say what claims were given (`claim_accounts`).
2. Pods with the gate get node and cards, the oldest first; so do those that kube-scheduler could not place where voda
   chose, if there is room elsewhere.
3. `share.assigned` is appended; then the pod's claims select these cards, and its gate is lifted.
4. A pod that finds no room is told in an Event what is left, and requests cards that jobs can spare (`card_requests`).
   Claims that nothing uses any more are deleted.

Level-triggered: each round looks at what there is. Rule: a share is in the log before a claim selects its card, at the
version of the account that it was chosen by; whoever dies in between leaves a share by which the next round goes on.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from voda.application.sharing.claims.bind_failures import BindFailures
from voda.application.sharing.claims.card_allotment import (
    CardAllotment,
    ChosenCards,
    Claimant,
    ClosedAccounts,
    RefusedClaimant,
)
from voda.application.sharing.claims.card_requests import CardRequests, RequestFact
from voda.application.sharing.claims.card_round import CardRound, UnusedCards
from voda.application.sharing.claims.claim_accounts import ACTOR, ClaimAccounts, succeeds
from voda.application.sharing.claims.claimants import Claimants
from voda.application.sharing.claims.scheduling_tries import SchedulingTries
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.chosen_claims import replaced_claims
from voda.concurrency import log_unexpected
from voda.domain.errors import ActionRefused
from voda.events.types import ShareAssigned, ShareReleased
from voda.operator.status.kube_events import Announcement, Subject
from voda.projections.shares import ShareAccounts
from voda.sharing.card_chooser import CardChooser
from voda.sharing.raters import Rater

_LOOK_S: Final = 0.05
_LOOK_ANYWAY_S: Final = 5.0
"""Also where nothing has changed: time passes, and calls fail."""
_CALLS_AT_ONCE: Final = 32


@dataclass(kw_only=True)
class ClaimPlacer:
    """Runs while this replica leads."""

    claimants: Claimants
    rater: Rater
    announce: Callable[[Announcement], None]
    _tries: SchedulingTries = field(default_factory=SchedulingTries, init=False)
    _announced: dict[str, str] = field(default_factory=dict, init=False)
    """Uid of a pod that waits -> what was announced of it last."""
    _under_way: set[str] = field(default_factory=set, init=False)
    """Uids of pods whose claims are being bound."""
    _failures: BindFailures = field(default_factory=BindFailures, init=False)
    _refused: Sequence[RefusedClaimant] = field(default=(), init=False)
    """Pods that found no room in the last round."""
    _closed: ClosedAccounts = field(default_factory=ClosedAccounts, init=False)

    def __post_init__(self) -> None:
        self._chooser = CardChooser(self.rater)
        self.accounts: ClaimAccounts = self.claimants.accounts
        self._backend = self.accounts.backend
        self._requests = CardRequests(self.claimants)
        self._calls = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def run(self) -> None:
        """Look whenever something has changed, until cancelled."""
        cards, seen, looked_at = self.accounts.cards, (-1, -1, -1), 0.0
        tidying: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            while True:
                now = self._backend.clock.now()
                state = self.accounts.pods.changes, cards.changes, self._backend.view.position
                if now - looked_at >= _LOOK_ANYWAY_S:
                    looked_at, seen = now, (-1, -1, -1)
                    self.accounts.mark_all()
                    if tidying is None or tidying.done():
                        tidying = group.create_task(self._tidy())
                if state != seen or now >= self._requests.next_at:
                    seen = state
                    await self.accounts.step()
                    with log_unexpected("placing pods that claim cards", "shares"):
                        for each in await self._place(now):
                            group.create_task(self._bind(each))
                        await self._request(now)
                await asyncio.sleep(_LOOK_S)

    async def _place(self, now: float) -> Sequence[ChosenCards]:
        """Record the cards of pods that wait, and return those whose claims are to select them."""
        self._refused = ()
        if not (waiting := self.accounts.pods.waiting()):
            return ()
        self._forget(now)
        looked = await self._look_at(waiting, now)
        new = defaultdict[str, list[ChosenCards]](list)
        for each in looked.chosen.values():
            if self._shares.node_of(each.claimant.uid) != each.node:
                new[each.node].append(each)
        async with asyncio.TaskGroup() as group:
            for node, those in new.items():
                group.create_task(succeeds(self._assign(node, those, now), node))
            for pod in looked.bereft.values():
                group.create_task(succeeds(self._unname(pod), pod.metadata.key))
            for held in looked.unused:
                group.create_task(succeeds(self._yield(held, now), held.meant.claimant.key))
        recorded = [each for each in looked.chosen.values() if self.claimants.has(each)]
        self._under_way.update(each.claimant.uid for each in recorded)
        return recorded

    async def _look_at(self, waiting: Collection[Pod], now: float) -> CardRound:
        """Choose cards for pods that wait; those that get none are told why."""
        looked = CardRound(
            claimants=self.claimants,
            allotment=CardAllotment(self._chooser, self.claimants.open_nodes(), self._closed),
            tries=self._tries,
            failures=self._failures,
            under_way=self._under_way,
            now=now,
        )
        await looked.look_at(waiting)
        self._refused = looked.allotment.refused
        for pod, reason in looked.reasons:
            self._announce(pod, reason, now)
        return looked

    async def _assign(self, node: str, chosen: Sequence[ChosenCards], now: float) -> None:
        """Record the shares of pods on one node, after those that they had elsewhere are given back."""
        version = self._shares.nodes[node].version
        for each in chosen:
            if former := self._shares.node_of(each.claimant.uid):
                self._tries.avoid(each.claimant.uid, former, now)
                await self._release(each.claimant, former, self._tries.move_reason(each.claimant.pod, former))
        facts = [
            ShareAssigned(node=node, pod_uid=each.claimant.uid, pod=each.claimant.key, containers=each.containers)
            for each in chosen
        ]
        await self._backend.record(*facts, actor=ACTOR, version=version)

    async def _yield(self, unused: UnusedCards, now: float) -> None:
        """Release cards that a pod has not come to use; its claim goes on to select them, in case it does."""
        claimant, node = unused.meant.claimant, unused.meant.node
        why = "the API server refuses claims that select the cards"
        await self._release(claimant, node, self._tries.yield_reason(claimant.pod, node) if unused.are_named else why)
        self._requests.failed(claimant.uid, node, now)
        if not unused.are_named:
            self._failures.gave_up(claimant.uid, now)
            return
        self._tries.yielded(claimant.pod, node, now)
        if claimant.pod.status.nominated_node_name == node:
            await self.accounts.binding.keep_no_room(claimant.pod)

    async def _unname(self, pod: Pod) -> None:
        """Have a pod name no cards, now that its claims are gone: kube-controller-manager then sees to them."""
        self.claimants.inventory.update_pod(await self.accounts.binding.unname(pod))

    async def _release(self, claimant: Claimant, node: str, reason: str) -> None:
        fact = ShareReleased(node=node, pod_uid=claimant.uid, pod=claimant.key, reason=reason)
        await self._backend.record(fact, actor=ACTOR, version=self._shares.nodes[node].version)

    async def _request(self, now: float) -> None:
        """Record the requests that begin and end now."""
        facts = defaultdict[str, list[RequestFact]](list)
        for fact in self._requests.due(self._refused, now):
            facts[fact.node].append(fact)
        async with asyncio.TaskGroup() as group:
            for node, those in facts.items():
                group.create_task(succeeds(self._record(node, those, now), node))

    async def _record(self, node: str, facts: Sequence[RequestFact], now: float) -> None:
        await self._backend.record(*facts, actor=ACTOR, version=self._shares.nodes[node].version)
        for fact in facts:
            self._requests.recorded(fact, now)

    async def _bind(self, chosen: ChosenCards) -> None:
        """Have the claims of a pod select its cards; where that fails, a later round tries again."""
        uid, key = chosen.claimant.uid, chosen.claimant.key
        try:
            async with self._calls:
                is_done = await succeeds(self._pin(chosen), key)
        finally:
            self._under_way.discard(uid)
        if is_done:
            self._announced.pop(uid, None)
            self._failures.succeeded(uid)
        elif chosen.renewals:
            self._tries.not_renewed(uid)
        else:
            self._failures.failed(uid, self._backend.clock.now())

    async def _pin(self, chosen: ChosenCards) -> None:
        if self.claimants.is_bound(chosen):
            # It gets cards again that it had given back: what was said of it is of these.
            return
        try:
            pod = await self.accounts.binding.pin(chosen.claimant.pod, self.claimants.claims(chosen), chosen.node)
        except ActionRefused as error:
            if chosen.renewals:
                raise
            now = self._backend.clock.now()
            self._failures.refused(chosen.claimant.uid, now)
            why = f"cards were chosen on {chosen.node}, but the API server refuses to name them in its claims: {error}"
            self._announce(chosen.claimant.pod, why, now)
            raise
        # The mirror may be behind, and the next round would do it again.
        self.claimants.inventory.update_pod(pod)
        if not chosen.renewals:
            self._tries.named(pod)

    async def _tidy(self) -> None:
        """Delete the claims of pods on nodes whose place was taken by those that select cards."""
        with log_unexpected("deleting claims", "shares"):
            for pod in list(self.accounts.pods.by_uid.values()):
                for claim in replaced_claims(pod, self.accounts.cards.claims_of(pod.metadata.uid)):
                    async with self._calls:
                        await succeeds(self.accounts.binding.delete(claim), claim.metadata.key)

    def _announce(self, pod: Pod, reason: str, now: float) -> None:
        meta = pod.metadata
        if self._announced.get(meta.uid) != reason:
            self._announced[meta.uid] = reason
            subject = Subject(api_version="v1", kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
            self.announce(
                Announcement(subject=subject, reason="WaitsForCards", message=reason, at=now, key=f"{now} {reason}")
            )

    def _forget(self, now: float) -> None:
        there = self.accounts.pods.by_uid
        self._announced = {uid: reason for uid, reason in self._announced.items() if uid in there}
        self._failures.forget(there)
        self._tries.forget(there, now)

    @property
    def _shares(self) -> ShareAccounts:
        return self.accounts.shares
