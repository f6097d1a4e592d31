"""What the leader remembers of one pod that claims GPUs, and what follows for it: one record, by the pod's uid. Pure.

1. A pod whose claims cannot be made to select its GPUs (a quota forbids them, say) keeps these for a minute. Then
   others get them: it is left out for a while, and chooses after the others.
2. A pod that kube-scheduler finds no place for avoids that node for a while. If no other node has GPUs for it, its
   claims are made anew now and then, which makes kube-scheduler look again, and others may have its GPUs after a
   minute; after five, if no scheduler looks at it (its schedulerName may be nobody's).
3. A pod that finds no room requests GPUs that jobs can spare (`requests`), ever more seldom where that was in vain.

Rule: all of it may be forgotten; a new leader tries again.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.backoff import delay_s
from voda.cluster.kubernetes.objects import KubeCondition, Pod
from voda.operator.sharing.claims.verdicts import verdict

_FIRST_BACKOFF_S: Final = 0.1
_LONGEST_BACKOFF_S: Final = 60.0
KEPT_S: Final = 60.0
"""For so long a pod keeps GPUs that its claims cannot be made to select."""
_LONGEST_LEFT_OUT_S: Final = 600.0
_MISSING_S: Final = 5.0
"""For so long claims of a pod may be missing: they are being replaced, or the mirror is behind."""
AVOIDED_S: Final = 300.0
"""For so long a pod avoids a node where it was; twice as long each time that it gives GPUs back."""
_LONGEST_AVOIDED_S: Final = 3600.0
_FIRST_PAUSE_S: Final = 300.0
_LONGEST_PAUSE_S: Final = 3600.0


class PodAttempt(Struct, frozen=True, kw_only=True):
    """See the module; instants are in seconds since the epoch."""

    told: str = ""
    """Why it waits, as it was announced last."""
    is_under_way: bool = False
    """Whether its claims are being made to select its GPUs."""

    failures: int = 0
    """How often in a row its claims could not be made."""
    retry_at: float = 0.0
    refused_since: float | None = None
    """When the API server refused them first in a row; None: it did not."""
    comes_last: bool = False
    """Whether it has lost its GPUs for that, and chooses after the others."""
    missing_since: float | None = None
    """Since when claims that its status names are not there."""

    avoided: Mapping[str, float] = {}
    """Nodes that it avoids -> until when."""
    former: KubeCondition | None = None
    """What had been said of it when its claims came to select the GPUs that it has."""
    not_renewed: int = 0
    """How often its claims could not be made anew."""
    times_given_back: int = 0
    """How often it has given GPUs back since it could not be placed."""
    was_unseen: bool = False
    """Whether it has lost its GPUs since no scheduler looked at it."""

    no_room_since: float | None = None
    in_vain: frozenset[str] = frozenset()
    """Nodes whose GPUs it has requested in vain."""
    pauses: int = 0
    """How often in a row what it requested was of no use."""
    request_at: float = 0.0
    """No request before."""
    has_moved_on: bool = False
    """Whether a request was withdrawn once, for its node had nothing to spare any more."""

    def is_hopeless(self, now: float) -> bool:
        """Say whether its claims have been refused for so long that others are to have its GPUs."""
        return self.refused_since is not None and now - self.refused_since >= KEPT_S

    def is_unseen(self, pod: Pod) -> bool:
        """Say whether it has lost its GPUs since no scheduler looked at it, and none has since."""
        return self.was_unseen and verdict(pod) is None

    def is_bereft(self, now: float) -> bool:
        """Say whether its claims, which are not there now, have been missing for long."""
        return self.missing_since is not None and now - self.missing_since >= _MISSING_S

    def at(self, now: float) -> "PodAttempt":
        """Return the record without the nodes that were avoided for long enough."""
        if all(until > now for until in self.avoided.values()):
            return self
        return replace(self, avoided={node: until for node, until in self.avoided.items() if until > now})

    def avoiding(self, node: str, now: float, span_s: float = AVOIDED_S) -> "PodAttempt":
        return replace(self, avoided={**self.avoided, node: now + span_s})

    def bound(self) -> "PodAttempt":
        """Return the record once its claims select its GPUs."""
        return replace(self, failures=0, retry_at=0.0, refused_since=None, comes_last=False)

    def failed(self, now: float, *, at_least_s: float = 0.0) -> "PodAttempt":
        """Return the record after a try that failed, whatever of: the next one comes later."""
        failures = self.failures + 1
        span_s = max(delay_s(failures, first_s=_FIRST_BACKOFF_S, longest_s=_LONGEST_BACKOFF_S), at_least_s)
        return replace(self, failures=failures, retry_at=now + span_s)

    def refused(self, now: float) -> "PodAttempt":
        """Return the record after a try that failed because of the pod or its claims."""
        return replace(self, refused_since=now if self.refused_since is None else min(now, self.refused_since))

    def named(self, pod: Pod) -> "PodAttempt":
        """Return the record once its claims select other GPUs than before: what was said of it is not of these."""
        return replace(self, former=verdict(pod), not_renewed=0)

    def left_out(self, node: str, now: float) -> "PodAttempt":
        """Return the record once it has lost GPUs that its claims could not select: for as long as it was refused."""
        refused_s = now - self.refused_since if self.refused_since is not None else 0.0
        left_out = self.failed(now, at_least_s=min(refused_s, _LONGEST_LEFT_OUT_S))
        return replace(left_out, comes_last=True).pausing(node, now)

    def gave_back(self, pod: Pod, node: str, now: float) -> "PodAttempt":
        """Return the record once it has lost GPUs that it did not come to use."""
        pausing = self.pausing(node, now)
        if verdict(pod) is None:
            return replace(pausing, was_unseen=True)
        times = self.times_given_back + 1
        span_s = delay_s(times, first_s=AVOIDED_S, longest_s=_LONGEST_AVOIDED_S)
        return replace(pausing, times_given_back=times).avoiding(node, now, span_s)

    def pausing(self, node: str, now: float) -> "PodAttempt":
        """Return the record once GPUs of a node were of no use to it: it pauses before it requests others."""
        pauses = self.pauses + 1
        span_s = delay_s(pauses, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        return replace(self, pauses=pauses, request_at=now + span_s, in_vain=self.in_vain | {node})


NEW: Final = PodAttempt()
"""Of a pod of which nothing is known."""
