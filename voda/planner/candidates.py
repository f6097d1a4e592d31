"""The jobs that a decision is about, in named sets, and what it makes of them. Pure."""

from collections.abc import Mapping, Set
from typing import Protocol

from msgspec import Struct

from voda.domain.plan import Devices, Placement, Quotas
from voda.domain.reasons.outcomes import Reason
from voda.domain.reasons.stalls import Stuck
from voda.domain.state import ClusterState
from voda.planner.done_replicas import without_done
from voda.planner.eligibility import eligible_view
from voda.planner.node_states import with_closed_nodes
from voda.planner.start_backoff import with_backed_off_last
from voda.policies import Policy


class Candidates(Struct, frozen=True, kw_only=True):
    """The jobs of a pool, as its next plan looks at them."""

    view: ClusterState
    """Of the jobs that may have workers now; nodes that are cordoned or silent have room for the workers there."""
    known: Set[str] = frozenset()
    """All jobs of the pool, those that are held too."""
    held: Mapping[str, Reason] = {}
    """Jobs that may have no workers now -> why."""
    stuck: Mapping[str, Stuck] = {}
    """Jobs that make no use of their GPUs -> why."""
    last: Set[str] = frozenset()
    """Those of them that others go before for a while; the rest keep what they work with."""
    steady: Set[str] = frozenset()
    """Jobs at work that leave idle cells to guarantees alone."""


class Placed(Struct, frozen=True, kw_only=True):
    """Where the workers of every job are, what guarantees them, and why."""

    placement: Placement
    guaranteed: Quotas = {}
    devices: Devices = {}
    reasons: Mapping[str, Reason]
    left_out: Mapping[str, Reason] = {}
    """Jobs for which the nodes have no room -> why."""


class CellDecider(Protocol):
    """Decides on a pool that has virtual clusters: the hook of `decide` for them."""

    def __call__(self, candidates: Candidates, policy: Policy, now: float) -> Placed:
        """Return what is decided; the policy is the pool's, `now` in seconds since the epoch."""


def candidates_of(view: ClusterState, now: float) -> Candidates:
    """Return the jobs that a decision is about. Replicas that are done need no GPUs any more."""
    eligible, held = eligible_view(view, now)
    eligible, stuck, last = with_backed_off_last(without_done(eligible), now)
    return Candidates(view=with_closed_nodes(eligible, now), known=view.jobs.keys(), held=held, stuck=stuck, last=last)
