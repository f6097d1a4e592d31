"""One look at all pods that wait for cards: which get some, which give theirs back, and why the others wait.

Rule: nothing is written; what is odd about one pod keeps nobody else from its cards.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.application.sharing.claims.bind_failures import BindFailures
from voda.application.sharing.claims.card_allotment import CardAllotment, ChosenCards
from voda.application.sharing.claims.claimants import Claimants
from voda.application.sharing.claims.scheduling_tries import SchedulingTries, unseen_reason
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import Pod
from voda.concurrency import log_unexpected
from voda.domain.errors import InvalidInput

_MOST_AT_ONCE: Final = 64
"""Pods that are being bound: those after them see what became of these."""
_PODS_AT_ONCE: Final = 25
"""Then others get a turn."""


class UnusedCards(Struct, frozen=True):
    """Cards that a pod has held for too long without coming to use them."""

    meant: ChosenCards
    are_named: bool
    """Whether the pod's claims select them."""


@dataclass(kw_only=True)
class CardRound:
    """See the module; `now` is in seconds since the epoch."""

    claimants: Claimants
    allotment: CardAllotment
    tries: SchedulingTries
    failures: BindFailures
    under_way: Collection[str]
    """Uids of pods whose claims are being bound."""
    now: float
    chosen: dict[str, ChosenCards] = field(default_factory=dict, init=False)
    """By uid; cards that the log has and the pod's claims do not select yet are among them."""
    unused: list[UnusedCards] = field(default_factory=list, init=False)
    bereft: dict[str, Pod] = field(default_factory=dict, init=False)
    """By uid; those whose claims somebody has deleted, though they had cards."""
    reasons: list[tuple[Pod, str]] = field(default_factory=list, init=False)
    """Pods that get no cards, and why."""

    async def look_at(self, waiting: Collection[Pod]) -> None:
        """Look at the pods, the oldest first; those that the API server refused come last."""
        pods = sorted(waiting, key=lambda pod: self.failures.is_last(pod.metadata.uid))
        for number, pod in enumerate(pods):
            if number % _PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if len(self.chosen) + len(self.under_way) >= _MOST_AT_ONCE:
                break
            with log_unexpected("choosing cards", pod.metadata.key):
                self._decide(pod)

    def _decide(self, pod: Pod) -> None:
        found = self._answer(pod)
        if isinstance(found, ChosenCards):
            self.chosen[pod.metadata.uid] = found
        elif isinstance(found, UnusedCards):
            self.unused.append(found)
        elif found is not None:
            self.reasons.append((pod, found))

    def _answer(self, pod: Pod) -> ChosenCards | UnusedCards | str | None:
        """Return the cards of a pod, or why it gets none; None: there is nothing to do about it now."""
        uid = pod.metadata.uid
        is_due, is_hopeless = self.failures.is_due(uid, self.now), self.failures.is_hopeless(uid, self.now)
        if uid in self.under_way or self.claimants.accounts.is_given(uid):
            return None
        try:
            claimant = self.claimants.of(pod, self.tries.avoided(uid))
        except InvalidInput as error:
            return str(error)
        if claimant is None:
            if well_known.CARDS in pod.metadata.annotations and self.tries.is_bereft(uid, self.now):
                self.bereft[uid] = pod
            return None
        self.tries.has_claims(uid)
        meant = self.claimants.meant(claimant)
        if not is_due and (meant is None or not is_hopeless):
            return None
        if meant is not None:
            return self._answer_of_holder(meant, is_hopeless=is_hopeless)
        if self.tries.is_unseen(pod):
            return unseen_reason(pod)
        found = self.allotment.choose(claimant)
        if isinstance(found, str) and (node := self.claimants.shares.requests().get(uid)) is not None:
            self.allotment.keep_requested(node, claimant)
        return found

    def _answer_of_holder(self, meant: ChosenCards, *, is_hopeless: bool) -> ChosenCards | UnusedCards | str | None:
        """Return what becomes of a pod that has cards in the log."""
        if self.claimants.is_lost(meant):
            return self._elsewhere(meant)
        if not self.claimants.accounts.is_known(meant.node):
            return None
        if not self.claimants.is_bound(meant):
            return UnusedCards(meant, are_named=False) if is_hopeless else meant
        pod, node, held_s = meant.claimant.pod, meant.node, self.now - meant.assigned_at
        # Where the answer to the last try was lost, it was done all the same.
        self.failures.succeeded(pod.metadata.uid)
        if self.tries.is_to_move(pod, node, held_s) and isinstance(found := self._elsewhere(meant), ChosenCards):
            return found
        if self.tries.is_to_yield(pod, node, held_s):
            return UnusedCards(meant, are_named=True)
        renewals = self.claimants.renewals(meant)
        return replace(meant, renewals=renewals + 1) if self.tries.is_to_renew(pod, node, held_s, renewals) else None

    def _elsewhere(self, meant: ChosenCards) -> ChosenCards | str:
        """Return cards of another node for a pod, or why there are none."""
        return self.allotment.choose(replace(meant.claimant, avoided={*meant.claimant.avoided, meant.node}))
