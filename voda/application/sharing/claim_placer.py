"""Places pods that claim parts of cards (dynamic resource allocation): voda chooses, kube-scheduler allocates.

1. The accounts of nodes come to say what claims were given (`claim_accounts`).
2. Pods with the gate get node and cards, the oldest first; so do those that kube-scheduler could not place where voda
   chose, if there is room elsewhere.
3. `share.assigned` is appended; then the pod's claims select these cards, and its gate is lifted.
4. A pod that finds no room is told in an Event what is left. Claims that nothing uses any more are deleted.

Level-triggered: each round looks at what there is. Rule: a share is in the log before a claim selects its card, at the
version of the account that it was chosen by; whoever dies in between leaves a share by which the next round goes on.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from voda.application.sharing.claim_accounts import ACTOR, ClaimAccounts, succeeds
from voda.application.sharing.claim_decisions import CardAllotment, ChosenCards, Claimant, OpenNode
from voda.application.status.kube_events import Announcement, Subject
from voda.backoff import Backoff
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.claim_requests import (
    ChosenClaim,
    asked_of_cards,
    chosen_claims,
    claims_of_pod,
    nodes_too_small,
    replaced_claims,
)
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.concurrency import log_unexpected
from voda.domain.errors import InvalidInput
from voda.events.types import ShareAssigned, ShareReleased
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
_UNSCHEDULABLE_S: Final = 3.0
"""For so long a pod may be unschedulable where voda chose: its claim may be new to kube-scheduler."""
_LONGEST_UNSCHEDULABLE_S: Final = 60.0
"""Twice as long on each node that follows: where it fits on none, it would else move as long as there are nodes."""
_FIRST_BACKOFF_S: Final = 0.1
_LONGEST_BACKOFF_S: Final = 60.0
"""Of a pod whose claims cannot be bound again and again: a quota forbids them, say, and others are to have its turn."""
_AVOIDED_S: Final = 300.0
"""For so long a pod avoids a node where it was."""


@dataclass(kw_only=True)
class ClaimPlacer:
    """Runs while this replica leads."""

    accounts: ClaimAccounts
    inventory: Inventory
    rater: Rater
    announce: Callable[[Announcement], None]
    _avoided: dict[str, dict[str, float]] = field(default_factory=dict, init=False)
    """Uid of a pod -> nodes where kube-scheduler could not place it -> until when they are avoided."""
    _announced: dict[str, str] = field(default_factory=dict, init=False)
    """Uid of a pod that waits -> what was announced of it last."""
    _under_way: set[str] = field(default_factory=set, init=False)
    """Uids of pods whose claims are being bound."""
    _backoff: Backoff = field(
        default_factory=lambda: Backoff(first_s=_FIRST_BACKOFF_S, longest_s=_LONGEST_BACKOFF_S), init=False
    )
    """By uid of a pod whose claims could not be bound."""
    _version: int = field(default=-2, init=False)
    """Of accounts that rounds only imagined; ever lower."""

    def __post_init__(self) -> None:
        self._chooser = CardChooser(self.rater)
        self._backend = self.accounts.backend
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
                if state != seen:
                    seen = state
                    await self.accounts.step()
                    with log_unexpected("placing pods that claim cards", "shares"):
                        for each in await self._place(now):
                            group.create_task(self._bind(each))
                await asyncio.sleep(_LOOK_S)

    async def _place(self, now: float) -> Sequence[ChosenCards]:
        """Record the cards of pods that wait, and return those whose claims are to select them."""
        if not (waiting := self.accounts.pods.waiting()):
            return ()
        self._forget(now)
        chosen = await self._choose(waiting, now)
        new = defaultdict[str, list[ChosenCards]](list)
        for each in chosen:
            if self._shares.node_of(each.claimant.uid) != each.node:
                new[each.node].append(each)
        async with asyncio.TaskGroup() as group:
            for node, those in new.items():
                group.create_task(succeeds(self._assign(node, those, now), node))
        found = [each for each in chosen if self._has(each)]
        self._under_way.update(each.claimant.uid for each in found)
        return found

    async def _choose(self, waiting: Iterable[Pod], now: float) -> Sequence[ChosenCards]:
        """Return what is to be done in this round about pods that wait."""
        allotment = CardAllotment(self._chooser, self._open_nodes(), self._version)
        chosen = list[ChosenCards]()
        for number, pod in enumerate(waiting):
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
            elif found is not None:
                chosen.append(found)
        self._version = allotment.version
        return chosen

    def _look(self, pod: Pod, allotment: CardAllotment, now: float) -> ChosenCards | str | None:
        """Return the cards of a pod that waits, or why it gets none; None: there is nothing to do about it now."""
        uid, devices = pod.metadata.uid, self.inventory.stock.devices
        claims = claims_of_pod(pod, devices.claims)
        if (
            uid in self._under_way
            or not self._backoff.is_due(uid, now)
            or claims is None
            or self.accounts.is_given(uid)
        ):
            return None
        if uid in self.inventory.sharing.by_uid:
            # Its share may be the extender's, which is about to bind it.
            return f"pod {pod.metadata.key} asks for cards by resources and by claims, expected one of them"
        try:
            requests = asked_of_cards(pod, claims, devices.rule.device_classes, devices.shared)
        except InvalidInput as error:
            return str(error)
        too_small = nodes_too_small(claims, devices.rule.device_classes, devices.shared)
        avoided = {*self._avoided.get(uid, ())}
        claimant = Claimant(pod=pod, claims=claims, requests=requests, avoided=avoided, too_small=too_small)
        node, shares = self._shares.node_of(uid), self._shares.of(uid)
        if shares is None:
            return allotment.choose(claimant)
        meant = ChosenCards(claimant=claimant, node=node, containers=shares.containers)
        if self._is_lost(meant):
            return self._elsewhere(meant, allotment)
        if not self.accounts.is_known(node):
            return None
        if not self._is_bound(meant):
            return meant
        unschedulable_s = min(_UNSCHEDULABLE_S * 2 ** len(self._avoided.get(uid, ())), _LONGEST_UNSCHEDULABLE_S)
        if _is_unschedulable(pod) and now - shares.assigned_at >= unschedulable_s:
            found = self._elsewhere(meant, allotment)
            return found if isinstance(found, ChosenCards) else None
        return None

    def _elsewhere(self, meant: ChosenCards, allotment: CardAllotment) -> ChosenCards | str:
        """Return cards of another node for a pod, or why there are none."""
        return allotment.choose(replace(meant.claimant, avoided={*meant.claimant.avoided, meant.node}))

    def _is_lost(self, meant: ChosenCards) -> bool:
        """Say whether a card that a pod is meant to have is there no more."""
        there = len(self.accounts.cards.nodes.get(meant.node, ()))
        return any(max(each.cards) >= there for each in meant.containers.values())

    def _is_bound(self, chosen: ChosenCards) -> bool:
        """Say whether the claims of a pod select its cards, and nothing is left to do."""
        pod = chosen.claimant.pod
        is_gated = well_known.SHARE_GATE in pod.gates
        return not is_gated and all(each.is_chosen(pod) for each in self._claims(chosen).values())

    def _claims(self, chosen: ChosenCards) -> Mapping[str, ChosenClaim]:
        return chosen_claims(chosen.claimant.claims, chosen.containers, chosen.node, self.accounts.cards)

    async def _assign(self, node: str, chosen: Sequence[ChosenCards], now: float) -> None:
        """Record the shares of pods on one node, after those that they had elsewhere are given back."""
        version = self._shares.nodes[node].version
        for each in chosen:
            uid, key = each.claimant.uid, each.claimant.key
            if former := self._shares.node_of(uid):
                self._avoided.setdefault(uid, {})[former] = now + _AVOIDED_S
                reason = _refusal(each.claimant.pod)
                released = ShareReleased(node=former, pod_uid=uid, pod=key, reason=reason)
                await self._backend.record(released, actor=ACTOR, version=self._shares.nodes[former].version)
        facts = [
            ShareAssigned(node=node, pod_uid=each.claimant.uid, pod=each.claimant.key, containers=each.containers)
            for each in chosen
        ]
        await self._backend.record(*facts, actor=ACTOR, version=version)

    def _has(self, chosen: ChosenCards) -> bool:
        """Say whether the log has the share, by which alone claims may select cards."""
        uid = chosen.claimant.uid
        found = self._shares.of(uid) if self._shares.node_of(uid) == chosen.node else None
        return found is not None and found.containers == chosen.containers and self.accounts.is_known(chosen.node)

    async def _bind(self, chosen: ChosenCards) -> None:
        """Have the claims of a pod select its cards; where that fails, a later round tries again."""
        uid, key = chosen.claimant.uid, chosen.claimant.key
        try:
            async with self._calls:
                is_done = await succeeds(self._pin(chosen), key)
        finally:
            self._under_way.discard(uid)
        if is_done:
            self._backoff.reset(uid)
        else:
            self._backoff.failed(uid, self._backend.clock.now())

    async def _pin(self, chosen: ChosenCards) -> None:
        pod = await self.accounts.binding.pin(chosen.claimant.pod, self._claims(chosen), chosen.node)
        # The mirror may be behind, and the next round would do it again.
        self.inventory.update_pod(pod)
        self._announced.pop(chosen.claimant.uid, None)

    async def _tidy(self) -> None:
        """Delete the claims of pods on nodes whose place was taken by those that select cards."""
        with log_unexpected("deleting claims", "shares"):
            for pod in list(self.accounts.pods.by_uid.values()):
                for claim in replaced_claims(pod, self.accounts.cards.claims_of(pod.metadata.uid)):
                    async with self._calls:
                        await succeeds(self.accounts.binding.delete(claim), claim.metadata.key)

    def _open_nodes(self) -> Mapping[str, OpenNode]:
        stock, cards, found = self.inventory.stock, self.accounts.cards, {}
        for name, there in cards.nodes.items():
            node = stock.node(name)
            if node is not None and node.is_open and self.accounts.is_known(name):
                closed = [
                    index for index, card in enumerate(there) if card.device.is_closed or not cards.selector(card)
                ]
                found[name] = OpenNode(
                    account=self._shares.nodes[name], labels=stock.nodes[name].metadata.labels, closed_cards=closed
                )
        return found

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
        self._backoff.forget_before(now - _LONGEST_BACKOFF_S)
        left = (
            (uid, {node: until for node, until in nodes.items() if until > now})
            for uid, nodes in self._avoided.items()
            if uid in there
        )
        self._avoided = {uid: nodes for uid, nodes in left if nodes}

    @property
    def _shares(self) -> ShareAccounts:
        return self.accounts.shares


def _is_unschedulable(pod: Pod) -> bool:
    return any(
        each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable"
        for each in pod.status.conditions
    )


def _refusal(pod: Pod) -> str:
    if not _is_unschedulable(pod):
        return "the card is gone"
    told = next(each.message for each in pod.status.conditions if each.type == "PodScheduled")
    return f"kube-scheduler cannot place the pod there: {told}"
