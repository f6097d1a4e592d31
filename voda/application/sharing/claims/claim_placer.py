"""Places pods that claim parts of cards (dynamic resource allocation): voda chooses, kube-scheduler allocates.

1. The accounts of nodes come to say what claims were given (`claim_accounts`); templates that pods name by a size are
   made (`template_maker`).
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.application.sharing.claims.bind_failures import KEPT_S, BindFailures
from voda.application.sharing.claims.card_allotment import (
    CardAllotment,
    ChosenCards,
    Claimant,
    ClosedAccounts,
    RefusedClaimant,
)
from voda.application.sharing.claims.card_requests import CardRequests
from voda.application.sharing.claims.claim_accounts import ACTOR, ClaimAccounts, succeeds
from voda.application.sharing.claims.claimants import Claimants
from voda.application.sharing.claims.scheduling_tries import SchedulingTries, unseen_reason
from voda.application.sharing.claims.template_maker import TemplateMaker, TemplateName
from voda.application.status.kube_events import Announcement, Subject
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.chosen_claims import replaced_claims
from voda.concurrency import log_unexpected
from voda.domain.errors import ActionRefused, InvalidInput
from voda.events.types import ShareAssigned, ShareReleased, ShareRequested, ShareRequestWithdrawn
from voda.projections.shares import ShareAccounts
from voda.sharing.card_chooser import CardChooser
from voda.sharing.raters import Rater

_LOOK_S: Final = 0.05
_LOOK_ANYWAY_S: Final = 5.0
"""Also where nothing has changed: time passes, and calls fail."""
_MOST_AT_ONCE: Final = 64
"""Pods that are being bound: those after them see what became of these."""
_CALLS_AT_ONCE: Final = 32
_PODS_AT_ONCE: Final = 100
"""Then others get a turn."""


class _UnusedCards(Struct, frozen=True):
    """Cards that a pod has held for too long without coming to use them."""

    meant: ChosenCards
    are_named: bool
    """Whether the pod's claims select them."""


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
        devices = self.claimants.inventory.stock.devices
        self._templates = TemplateMaker(binding=self.accounts.binding, devices=devices, pods=self.accounts.pods)
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
                        for template in self._templates.due(now):
                            group.create_task(self._make(template))
                await asyncio.sleep(_LOOK_S)

    async def _place(self, now: float) -> Sequence[ChosenCards]:
        """Record the cards of pods that wait, and return those whose claims are to select them."""
        self._refused = ()
        if not (waiting := self.accounts.pods.waiting()):
            return ()
        self._forget(now)
        chosen, unused = await self._choose(waiting, now)
        new = defaultdict[str, list[ChosenCards]](list)
        for each in chosen:
            if self._shares.node_of(each.claimant.uid) != each.node:
                new[each.node].append(each)
        async with asyncio.TaskGroup() as group:
            for node, those in new.items():
                group.create_task(succeeds(self._assign(node, those, now), node))
            for held in unused:
                group.create_task(succeeds(self._yield(held, now), held.meant.claimant.key))
        recorded = [each for each in chosen if self.claimants.has(each)]
        self._under_way.update(each.claimant.uid for each in recorded)
        return recorded

    async def _choose(self, waiting: Iterable[Pod], now: float) -> tuple[Sequence[ChosenCards], Sequence[_UnusedCards]]:
        """Return the cards of pods that wait, and those that pods give back; pods that get none are told why."""
        allotment = CardAllotment(self._chooser, self.claimants.open_nodes(), self._closed, self.accounts.kept_cards())
        chosen, unused = list[ChosenCards](), list[_UnusedCards]()
        for number, pod in enumerate(sorted(waiting, key=lambda pod: self._failures.is_last(pod.metadata.uid))):
            if number % _PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if len(chosen) + len(self._under_way) >= _MOST_AT_ONCE:
                break
            found = None
            # Whatever is odd about it, those after it are looked at.
            with log_unexpected("choosing cards", pod.metadata.key):
                found = self._look(pod, allotment, now)
            if isinstance(found, str):
                self._announce(pod, found, now)
            elif isinstance(found, _UnusedCards):
                unused.append(found)
            elif found is not None:
                chosen.append(found)
        self._refused = allotment.refused
        return chosen, unused

    def _look(self, pod: Pod, allotment: CardAllotment, now: float) -> ChosenCards | _UnusedCards | str | None:
        """Return the cards of a pod that waits, or why it gets none; None: there is nothing to do about it now."""
        uid = pod.metadata.uid
        is_due = self._failures.is_due(uid, now)
        if uid in self._under_way or self.accounts.is_given(uid):
            return None
        try:
            claimant = self.claimants.of(pod, self._tries.avoided(uid))
        except InvalidInput as error:
            return str(error)
        if claimant is None:
            return self._templates.obstacle(pod) or None
        meant = self.claimants.meant(claimant)
        if not is_due and (meant is None or not self._failures.is_hopeless(uid, now)):
            return None
        if meant is None:
            return unseen_reason(pod) if self._tries.is_unseen(pod) else allotment.choose(claimant)
        if self.claimants.is_lost(meant):
            return self._elsewhere(meant, allotment)
        if not self.accounts.is_known(meant.node):
            return None
        if not self.claimants.is_bound(meant):
            return _UnusedCards(meant, are_named=False) if self._failures.is_hopeless(uid, now) else meant
        # Where the answer to the last try was lost, it was done all the same.
        self._failures.succeeded(uid)
        node, held_s, tries = meant.node, now - meant.assigned_at, self._tries
        if tries.is_to_move(pod, node, held_s) and isinstance(found := self._elsewhere(meant, allotment), ChosenCards):
            return found
        return _UnusedCards(meant, are_named=True) if tries.is_to_yield(pod, node, held_s) else None

    def _elsewhere(self, meant: ChosenCards, allotment: CardAllotment) -> ChosenCards | str:
        """Return cards of another node for a pod, or why there are none."""
        return allotment.choose(replace(meant.claimant, avoided={*meant.claimant.avoided, meant.node}))

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

    async def _yield(self, unused: _UnusedCards, now: float) -> None:
        """Release cards that a pod has not come to use; its claim goes on to select them, in case it does."""
        claimant, node = unused.meant.claimant, unused.meant.node
        if not unused.are_named:
            await self._release(claimant, node, f"its claims could not be made to select the cards for {KEPT_S:g} s")
            self._failures.gave_up(claimant.uid, now)
            return
        await self._release(claimant, node, self._tries.yield_reason(claimant.pod, node))
        self._tries.yielded(claimant.pod, node, now)
        if claimant.pod.status.nominated_node_name == node:
            await self.accounts.binding.keep_no_room(claimant.pod)

    async def _release(self, claimant: Claimant, node: str, reason: str) -> None:
        fact = ShareReleased(node=node, pod_uid=claimant.uid, pod=claimant.key, reason=reason)
        await self._backend.record(fact, actor=ACTOR, version=self._shares.nodes[node].version)

    async def _request(self, now: float) -> None:
        """Record the requests that begin and end now."""
        facts = defaultdict[str, list[ShareRequested | ShareRequestWithdrawn]](list)
        for fact in self._requests.due(self._refused, now):
            facts[fact.node].append(fact)
        async with asyncio.TaskGroup() as group:
            for node, those in facts.items():
                group.create_task(succeeds(self._record(node, those), node))

    async def _record(self, node: str, facts: Sequence[ShareRequested | ShareRequestWithdrawn]) -> None:
        await self._backend.record(*facts, actor=ACTOR, version=self._shares.nodes[node].version)

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
        else:
            self._failures.failed(uid, self._backend.clock.now())

    async def _pin(self, chosen: ChosenCards) -> None:
        if self.claimants.is_bound(chosen):
            # It gets cards again that it had given back: what was said of it is of these.
            return
        try:
            pod = await self.accounts.binding.pin(chosen.claimant.pod, self.claimants.claims(chosen), chosen.node)
        except ActionRefused as error:
            now = self._backend.clock.now()
            self._failures.refused(chosen.claimant.uid, now)
            why = f"cards were chosen on {chosen.node}, but the API server refuses to name them in its claims: {error}"
            self._announce(chosen.claimant.pod, why, now)
            raise
        # The mirror may be behind, and the next round would do it again.
        self.claimants.inventory.update_pod(pod)
        self._tries.named(pod)

    async def _make(self, template: TemplateName) -> None:
        # Not among the calls for pods: these are not to wait for templates of others.
        await succeeds(self._templates.make(template), template.key)

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
