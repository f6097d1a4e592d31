"""Where kube-scheduler could not place pods that claim cards, and for how long a pod holds cards that it cannot use.

A pod that kube-scheduler finds no place for avoids that node for a while. If no other node has cards for it, its claims
are made anew now and then, which makes kube-scheduler look again, and others may have its cards after a minute; after
five, if no scheduler looks at it (its schedulerName may be nobody's).

Rule: in memory alone; a new leader tries again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from voda.application.sharing.claims.claimants import is_unschedulable, scheduler_of, verdict
from voda.backoff import delay_s
from voda.cluster.kubernetes.objects import KubeCondition, Pod

_UNSCHEDULABLE_S: Final = 3.0
"""For so long a pod may be unschedulable where voda chose: its claim may be new to kube-scheduler."""
_LONGEST_UNSCHEDULABLE_S: Final = 60.0
"""Twice as long on each node that follows: where it fits on none, it would else move as long as there are nodes."""
_RENEWED_AFTER: Final = 4
"""Times as long as the time before a pod's claims are made anew the next time."""
_MISSING_S: Final = 5.0
"""For so long claims of a pod may be missing: they are being replaced, or the mirror is behind."""
_UNSEEN_S: Final = 300.0
"""For so long no scheduler may have looked at a pod: kube-scheduler may be away, or have very many pods to look at."""
_AVOIDED_S: Final = 300.0
"""For so long a pod avoids a node where it was; twice as long each time that it gives cards back."""
_LONGEST_AVOIDED_S: Final = 3600.0


@dataclass
class SchedulingTries:
    """See the module."""

    _avoided: dict[str, dict[str, float]] = field(default_factory=dict, init=False)
    """Uid of a pod -> nodes where kube-scheduler could not place it -> until when they are avoided."""
    _unseen: set[str] = field(default_factory=set, init=False)
    """Uids of pods that have lost their cards since no scheduler looked at them."""
    _former: dict[str, KubeCondition] = field(default_factory=dict, init=False)
    """Uid of a pod -> what had been said of it when its claims came to select the cards that it has."""
    _yields: dict[str, int] = field(default_factory=dict, init=False)
    """Uid of a pod -> how often it has given cards back since it could not be placed."""
    _missing_since: dict[str, float] = field(default_factory=dict, init=False)
    """Uid of a pod -> since when claims that its status names are not there."""
    _not_renewed: dict[str, int] = field(default_factory=dict, init=False)
    """Uid of a pod -> how often its claims could not be made anew."""

    def avoided(self, uid: str) -> Mapping[str, float]:
        """Return the nodes that a pod avoids -> until when."""
        return self._avoided.get(uid, {})

    def avoid(self, uid: str, node: str, now: float, span_s: float = _AVOIDED_S) -> None:
        """Have a pod avoid a node from now on."""
        self._avoided.setdefault(uid, {})[node] = now + span_s

    def named(self, pod: Pod) -> None:
        """Note that the claims of a pod select other cards than before: what was said of it is not of these."""
        if (found := verdict(pod)) is not None:
            self._former[pod.metadata.uid] = found
        else:
            self._former.pop(pod.metadata.uid, None)
        self._not_renewed.pop(pod.metadata.uid, None)

    def verdict(self, pod: Pod, node: str) -> KubeCondition | None:
        """Return what kube-scheduler says of a pod where its cards are; None: nothing yet, as far as one can tell.

        Where it says the same of two nodes, it writes nothing but to take the name of the second one away.
        """
        found = verdict(pod)
        is_looked_at = pod.spec.preemption_policy != "Never" and pod.status.nominated_node_name != node
        return found if found != self._former.get(pod.metadata.uid) or is_looked_at else None

    def is_to_move(self, pod: Pod, node: str, held_s: float) -> bool:
        """Say whether a pod that has been bound to cards of a node for so long had better get others."""
        limit_s = min(_UNSCHEDULABLE_S * 2 ** len(self.avoided(pod.metadata.uid)), _LONGEST_UNSCHEDULABLE_S)
        return is_unschedulable(self.verdict(pod, node)) and held_s >= limit_s

    def is_to_renew(self, pod: Pod, node: str, held_s: float, renewals: int) -> bool:
        """Say whether the claims of a pod that can have no other cards are to be made anew, as they were so often.

        kube-scheduler (1.37) counts a share twice while it writes the allocation. A pod that it looks at just then fits
        beside no other on the card, and it looks at that pod again after five minutes, or once it has another claim.
        """
        tried = renewals + self._not_renewed.get(pod.metadata.uid, 0)
        return is_unschedulable(self.verdict(pod, node)) and held_s >= _UNSCHEDULABLE_S * _RENEWED_AFTER**tried

    def is_bereft(self, uid: str, now: float) -> bool:
        """Say whether claims of a pod, which are not there now, have been missing for long; once in that time."""
        is_long = now - self._missing_since.setdefault(uid, now) >= _MISSING_S
        if is_long:
            self._missing_since[uid] = now
        return is_long

    def has_claims(self, uid: str) -> None:
        """Note that the claims of a pod are there."""
        self._missing_since.pop(uid, None)

    def not_renewed(self, uid: str) -> None:
        """Note that the claims of a pod could not be made anew: that counts as if they had been."""
        self._not_renewed[uid] = self._not_renewed.get(uid, 0) + 1

    def is_to_yield(self, pod: Pod, node: str, held_s: float) -> bool:
        """Say whether a pod that has been bound to cards for so long, and can have no others, is to give them back."""
        return held_s >= (_LONGEST_UNSCHEDULABLE_S if is_unschedulable(self.verdict(pod, node)) else _UNSEEN_S)

    def move_reason(self, pod: Pod, node: str) -> str:
        """Return why a pod loses cards for which it gets others."""
        found = self.verdict(pod, node)
        return _refusal(found) if found is not None and is_unschedulable(found) else "the card is gone"

    def yield_reason(self, pod: Pod, node: str) -> str:
        """Return why a pod loses cards that it has not come to use."""
        if (found := self.verdict(pod, node)) is not None:
            return _refusal(found)
        if verdict(pod) is not None:
            return f"kube-scheduler has said nothing new of the pod for {_UNSEEN_S:g} s"
        return unseen_reason(pod)

    def yielded(self, pod: Pod, node: str, now: float) -> None:
        """Note that a pod has lost its cards."""
        uid = pod.metadata.uid
        if verdict(pod) is None:
            self._unseen.add(uid)
            return
        self._yields[uid] = self._yields.get(uid, 0) + 1
        span_s = delay_s(self._yields[uid], first_s=_AVOIDED_S, longest_s=_LONGEST_AVOIDED_S)
        self.avoid(uid, node, now, span_s)

    def is_unseen(self, pod: Pod) -> bool:
        """Say whether a pod has lost its cards since no scheduler looked at it, and none has since."""
        return pod.metadata.uid in self._unseen and verdict(pod) is None

    def forget(self, there: Collection[str], now: float) -> None:
        """Forget the pods that are not there, and nodes that were avoided for long enough."""
        left = (
            (uid, {node: until for node, until in nodes.items() if until > now})
            for uid, nodes in self._avoided.items()
            if uid in there
        )
        self._avoided = {uid: nodes for uid, nodes in left if nodes}
        self._unseen.intersection_update(there)
        self._former = {uid: found for uid, found in self._former.items() if uid in there}
        self._yields = {uid: count for uid, count in self._yields.items() if uid in there}
        self._missing_since = {uid: since for uid, since in self._missing_since.items() if uid in there}
        self._not_renewed = {uid: count for uid, count in self._not_renewed.items() if uid in there}


def unseen_reason(pod: Pod) -> str:
    """Return what a pod is told that no scheduler looks at."""
    return f"no scheduler has looked at the pod for {_UNSEEN_S:g} s: its schedulerName is {scheduler_of(pod)}"


def _refusal(found: KubeCondition) -> str:
    return f"kube-scheduler cannot place the pod there: {found.message}"
