"""Policies decide how many replicas each job gets.

Rule: a policy is a pure function of the view and the time; what it must remember is in the view. To add one, write one
file in this folder with one class that has `name`, `title`, `paper` and `allocate`; the tools are in `toolkit`. Where
operators may tune it, the class has `parameters` too: a Struct of them beside it (toolkit/parameters.py).
"""

from collections.abc import Mapping
from functools import cache
from typing import ClassVar, Final, Protocol, TypeGuard, runtime_checkable

from voda.domain.plan import Allocation
from voda.domain.plugins import Catalogue
from voda.domain.reasons.outcomes import QueueReason
from voda.domain.state import ClusterState


class Policy(Protocol):
    """Decides how many replicas each ready job gets."""

    name: ClassVar[str]
    """As users write it: `elastic-fifo`."""
    title: ClassVar[str]
    """One line for `voda policies`."""
    paper: ClassVar[str]
    """Authors, title, venue and year of the source."""

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        """Return a count and one reason for every ready job of the view.

        Counts are 0 or within [min, max] of the job; the sum of replicas x GPUs per replica is at most
        `view.capacity_gpus`. The answer does not depend on the order of the view's mappings. Never raises.
        """


@runtime_checkable
class Queueing(Protocol):
    """A policy with queues of its own, into which it moves jobs as time goes by (Tiresias)."""

    def requeue(self, view: ClusterState, now: float) -> Mapping[str, tuple[int, QueueReason]]:
        """Return job id -> (new queue level, reason) for the jobs that belong elsewhere by now."""

    def requeue_due_at(self, view: ClusterState, now: float) -> float:
        """Return the earliest instant > `now` at which `requeue` will move a job; infinite if none will."""


def has_queues(policy: Policy) -> TypeGuard[Queueing]:
    """Return whether the policy moves jobs between queues; as isinstance does, and fast enough for every step."""
    return _has_queues(type(policy))


@cache
def _has_queues(kind: type) -> bool:
    return issubclass(kind, Queueing)


def gives_as_requested(policy: Policy) -> bool:
    """Return whether a job gets the replicas that it requests or none; such a policy has this attribute."""
    return bool(getattr(policy, "gives_as_requested", False))


def weighs_restarts(policy: Policy) -> bool:
    """Return whether a policy weighs by itself what a restart costs; such a policy has this attribute."""
    return bool(getattr(policy, "weighs_restarts", False))


POLICIES: Final = Catalogue[Policy](__name__, method="allocate", noun="policy")
