"""The wings of a decision: what `decide` is given beside jobs, a policy and a placer. Pure.

Each has one hook, and the walk reads the same without it: then a pool has no virtual clusters, nobody shares a GPU, and
every node takes every worker that it has GPUs for.
"""

from collections.abc import Callable, Mapping, Set
from typing import Protocol

from msgspec import Struct

from voda.domain.plan import Placement
from voda.domain.reasons.outcomes import Reason
from voda.domain.state import ClusterState
from voda.placement import Placer
from voda.planner.candidates import Candidates, Placed
from voda.policies import Policy

Decided = Callable[[Candidates], Placed]
"""What becomes of candidates, by all of a decision that comes after a wing."""
GpuSharing = Callable[[Candidates, Policy, Decided], Placed]
"""Shows the rest of a decision other candidates for those that share a GPU, and says what each of these gets."""


class CellDecider(Protocol):
    """Decides on a pool that has virtual clusters."""

    def __call__(self, candidates: Candidates, policy: Policy, now: float) -> Placed:
        """Return what is decided; the policy is the pool's, `now` in seconds since the epoch."""


class NodeBounds(Protocol):
    """What a decision has to heed where jobs are bound to some nodes."""

    def sizes(
        self, view: ClusterState, replicas: Mapping[str, int], placed: Placement
    ) -> Mapping[str, tuple[int, Reason]]:
        """Return the jobs that were given more than their nodes have -> what they get of that, and why."""

    def last_word(self, wanted: Mapping[str, int], placed: Placed) -> Placed:
        """Return what becomes of the jobs, `wanted` being what the policy gives of what their nodes have."""


class FitRules:
    """What nodes take of jobs, beyond their GPUs; of this class: everything."""

    def shown(self, view: ClusterState) -> ClusterState:
        """Return the view in which jobs know the nodes that refuse them."""
        return view

    def placer(self, placer: Placer, _policy: Policy) -> Placer:
        """Return the placer as it heeds jobs that few nodes take."""
        return placer

    def outranked(
        self, candidates: Candidates, placed: Placed, _without: Callable[[Set[str]], Candidates], _decided: Decided
    ) -> tuple[Candidates, Placed]:
        """Return what becomes of the candidates where jobs without GPUs are at work on what others wait for.

        `_without` shows the candidates as if such jobs were not at work.
        """
        return candidates, placed

    def bounds(self, _view: ClusterState, _policy: Policy, _placer: Placer, _now: float) -> NodeBounds | None:
        """Return what a decision has to heed; None: no job of the view is bound to some nodes."""
        return None


def _as_it_is(candidates: Candidates, _policy: Policy, decided: Decided) -> Placed:
    return decided(candidates)


class Wings(Struct, frozen=True, kw_only=True):
    """The hooks of one decision."""

    in_cells: CellDecider | None = None
    share_gpus: GpuSharing = _as_it_is
    nodes: FitRules = FitRules()


NO_WINGS = Wings()
