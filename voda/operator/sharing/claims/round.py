"""One look at all pods that wait for GPUs: what is to be done of each, the oldest first. Pure.

A pod gets GPUs; or other ones, where kube-scheduler could not place it; or gives back what it has not come to use; or
is told why it waits. `RoundPlan` answers by what is known of the pods and what is remembered of them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import Pod
from voda.domain.reasons.pods import ClaimsRefused, ShareLoss
from voda.events.text.pods import pod_text
from voda.operator.sharing.claims.allotment import Allotment, ChosenGpus, Claimant, NoRoom
from voda.operator.sharing.claims.attempt import NEW, PodAttempt
from voda.operator.sharing.claims.verdicts import (
    UNSEEN_S,
    give_back_reason,
    is_unschedulable,
    move_reason,
    unseen,
    verdict_on,
)

MOST_UNDER_WAY: Final = 64
"""Pods whose claims are being bound: those after them see what became of these."""
_MOST_CHOSEN: Final = 25
"""Pods for which a round chooses GPUs: then others get a turn."""
_UNSCHEDULABLE_S: Final = 3.0
"""For so long a pod may be unschedulable where voda chose: its claim may be new to kube-scheduler."""
_LONGEST_UNSCHEDULABLE_S: Final = 60.0
"""Twice as long on each node that follows: where it fits on none, it would else move as long as there are nodes."""
_RENEWED_AFTER: Final = 4
"""Times as long as the time before a pod's claims are made anew the next time."""


class HeldGpus(Struct, frozen=True, kw_only=True):
    """GPUs that a pod has in the log."""

    gpus: ChosenGpus
    are_lost: bool
    """Whether one of them is there no more."""
    is_known: bool
    """Whether log and mirror have the same GPUs of the node."""
    are_named: bool
    """Whether the pod's claims select them, and nothing is left to do."""
    renewals: int
    """How often such claims were made anew."""


class UnplacedPod(Struct, frozen=True, kw_only=True):
    """What is known of a pod without a node."""

    pod: Pod
    claimant: Claimant | None = None
    """None: its claims are still to be made, or `obstacle` says why it gets no GPUs."""
    obstacle: str = ""
    is_given: bool = False
    """Whether a claim of it was given a part of a GPU: kube-scheduler is about to bind it."""
    held: HeldGpus | None = None
    requested_of: str = ""
    """The node whose GPUs jobs are to give up for it."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid


class Give(Struct, frozen=True):
    """Have the log give GPUs to a pod, and its claims select them."""

    gpus: ChosenGpus
    instead_of: str = ""
    """The node whose GPUs it has in the log, and loses."""
    reason: ShareLoss | None = None
    """Why it loses them."""


class GiveBack(Struct, frozen=True):
    """Take GPUs from a pod that has not come to use them; its claims go on to select them, in case it does."""

    gpus: ChosenGpus
    reason: ShareLoss
    are_named: bool


class Tell(Struct, frozen=True):
    """Say to a pod why it waits."""

    pod: Pod
    reason: str


class Unname(Struct, frozen=True):
    """Let a pod name no GPUs: somebody has deleted its claims."""

    pod: Pod


Action = Give | GiveBack | Tell | Unname


class RoundPlan:
    """What is to be done of pods that wait, one after the other; each action may be done twice.

    Args:
        allotment: chooses GPUs from what nodes have left.
        memory: what is remembered of pods, by uid.
        now: in seconds since the epoch.
    """

    def __init__(self, allotment: Allotment, memory: Mapping[str, PodAttempt], now: float) -> None:
        self.actions = list[Action]()
        self.refused = list[NoRoom]()
        """Pods that found no room, the oldest first."""
        self.memory = dict[str, PodAttempt]()
        """What is to be remembered of the pods that were looked at."""
        self._before = memory
        self._allotment = allotment
        self._now = now
        self._room = min(_MOST_CHOSEN, MOST_UNDER_WAY - sum(each.is_under_way for each in memory.values()))

    @property
    def is_full(self) -> bool:
        """Say whether the pods that follow are left to the next round."""
        return self._room <= 0

    def in_turn(self, pods: Sequence[UnplacedPod]) -> Sequence[UnplacedPod]:
        """Return pods, the oldest first, in the order in which they are to be looked at."""
        return sorted(pods, key=lambda each: self._before.get(each.uid, NEW).comes_last)

    def look_at(self, waiting: UnplacedPod) -> None:
        """Decide what is to be done of a pod, which has what those before it leave."""
        action, attempt = self._next(waiting, self._before.get(waiting.uid, NEW).at(self._now))
        self.memory[waiting.uid] = attempt
        if action is not None:
            self.actions.append(action)
            self._room -= isinstance(action, Give)

    def _next(self, waiting: UnplacedPod, attempt: PodAttempt) -> tuple[Action | None, PodAttempt]:
        """Return what is to be done of a pod now, and what is to be remembered of it."""
        pod, claimant, held = waiting.pod, waiting.claimant, waiting.held
        if attempt.is_under_way or waiting.is_given:
            return None, attempt
        if waiting.obstacle:
            return Tell(pod, waiting.obstacle), attempt
        if claimant is None:
            return self._without_claims(pod, attempt)
        attempt = replace(attempt, missing_since=None) if attempt.missing_since is not None else attempt
        if self._now < attempt.retry_at and (held is None or not attempt.is_hopeless(self._now)):
            return None, attempt
        claimant = replace(claimant, avoided=attempt.avoided.keys())
        if held is not None:
            return self._of_holder(held, claimant, attempt)
        if attempt.is_unseen(pod):
            return Tell(pod, pod_text(unseen(pod))), attempt
        found = self._allotment.choose(claimant)
        if isinstance(found, ChosenGpus):
            return Give(found), attempt
        self.refused.append(found)
        if waiting.requested_of:
            self._allotment.keep_requested(waiting.requested_of, claimant)
        return Tell(pod, found.reason), attempt

    def _without_claims(self, pod: Pod, attempt: PodAttempt) -> tuple[Action | None, PodAttempt]:
        if well_known.GPUS not in pod.metadata.annotations:
            return None, attempt
        if attempt.is_bereft(self._now):
            return Unname(pod), replace(attempt, missing_since=self._now)
        since = self._now if attempt.missing_since is None else attempt.missing_since
        return None, replace(attempt, missing_since=since)

    def _of_holder(self, held: HeldGpus, claimant: Claimant, attempt: PodAttempt) -> tuple[Action | None, PodAttempt]:
        """Return what becomes of a pod that has GPUs in the log."""
        gpus, pod, node = replace(held.gpus, claimant=claimant), claimant.pod, held.gpus.node
        if held.are_lost:
            return self._elsewhere(gpus, attempt)
        if not held.is_known:
            return None, attempt
        if not held.are_named:
            if attempt.is_hopeless(self._now):
                return GiveBack(gpus, ClaimsRefused(), are_named=False), attempt
            return Give(gpus), attempt
        # Where the answer to the last try was lost, it was done all the same.
        attempt, held_s = attempt.bound(), self._now - gpus.assigned_at
        is_refused = is_unschedulable(verdict_on(pod, node, attempt.former))
        if is_refused and held_s >= min(_UNSCHEDULABLE_S * 2 ** len(attempt.avoided), _LONGEST_UNSCHEDULABLE_S):
            moved, elsewhere = self._elsewhere(gpus, attempt)
            if isinstance(moved, Give):
                return moved, elsewhere
        if held_s >= (_LONGEST_UNSCHEDULABLE_S if is_refused else UNSEEN_S):
            return GiveBack(gpus, give_back_reason(pod, node, attempt.former), are_named=True), attempt
        # kube-scheduler (1.37) counts a share twice while it writes the allocation. A pod that it looks at just then
        # fits beside no other on the GPU, and it looks at that pod again after five minutes, or once it has another
        # claim. A claim that could not be made anew counts as if it had been.
        if is_refused and held_s >= _UNSCHEDULABLE_S * _RENEWED_AFTER ** (held.renewals + attempt.not_renewed):
            return Give(replace(gpus, renewals=held.renewals + 1)), attempt
        return None, attempt

    def _elsewhere(self, gpus: ChosenGpus, attempt: PodAttempt) -> tuple[Action, PodAttempt]:
        """Return GPUs of another node for a pod, or why there are none."""
        claimant, node = gpus.claimant, gpus.node
        found = self._allotment.choose(replace(claimant, avoided={*claimant.avoided, node}))
        if not isinstance(found, ChosenGpus):
            return Tell(claimant.pod, found.reason), attempt
        reason = move_reason(claimant.pod, node, attempt.former)
        return Give(found, instead_of=node, reason=reason), attempt.avoiding(node, self._now)
