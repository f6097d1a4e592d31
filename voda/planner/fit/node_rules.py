"""The hook of a decision for nodes that do not take every job: filters, resources, and who gives way for them."""

from collections.abc import Callable, Mapping, Set
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.plan import Placement
from voda.domain.reasons.outcomes import Reason
from voda.domain.state import ClusterState
from voda.placement import Placer
from voda.placement.giving_way import Ways, give_way
from voda.planner.candidates import Candidates, Placed
from voda.planner.fit.bound_plan import filled, in_force, is_better
from voda.planner.fit.confinement import is_bound_to_nodes, sizes_within
from voda.planner.fit.node_fit import NodeFit
from voda.planner.gpuless.outranked import beside_outranked
from voda.planner.wings import Decided, FitRules, NodeBounds
from voda.policies import Policy, gives_as_requested

_MOST_POOLS: Final = 64


class KubernetesRules(FitRules):
    """What kube-scheduler would say of the nodes; for one thread at a time."""

    def __init__(self) -> None:
        self._pools: dict[str, NodeFit] = {}

    def shown(self, view: ClusterState) -> ClusterState:
        fit = self._pools[view.pool] = self._pools.pop(view.pool) if view.pool in self._pools else NodeFit()
        if len(self._pools) > _MOST_POOLS:
            # What was asked about longest ago; it costs one look at all of that pool to know it again.
            del self._pools[next(iter(self._pools))]
        return fit.shown(view)

    def placer(self, placer: Placer, policy: Policy) -> Placer:
        return _Yielding(placer, may_shrink=not gives_as_requested(policy))

    def outranked(
        self, candidates: Candidates, placed: Placed, without: Callable[[Set[str]], Candidates], decided: Decided
    ) -> tuple[Candidates, Placed]:
        return beside_outranked(candidates, placed, without, decided)

    def bounds(self, view: ClusterState, policy: Policy, placer: Placer, now: float) -> NodeBounds | None:
        return _Bounds(view=view, policy=policy, placer=placer, now=now) if is_bound_to_nodes(view) else None


class _Yielding:
    """A placer after whose answer jobs give way to those that few nodes take."""

    name: ClassVar[str] = "yielding"
    title: ClassVar[str] = "another placer, then jobs give way to those that few nodes take"

    def __init__(self, placer: Placer, *, may_shrink: bool) -> None:
        self._placer, self._may_shrink = placer, may_shrink

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        ways = Ways(view=view, replicas=replicas, may_shrink=self._may_shrink)
        placed = self._placer.place(view, replicas, now)
        if (given := give_way(ways, placed)) is placed:
            return placed
        is_whole = all(len(given.get(job_id, ())) == count for job_id, count in replicas.items())
        spanning = (job_id for job_id, nodes in given.items() if len(set(nodes)) > 1 and nodes != placed.get(job_id))
        if not is_whole or not any(spanning):
            return given
        # What spans because it gave way would be brought together by the next plan: it begins there.
        begun = replace(view, plan=replace(view.plan, placement=given))
        settled = self._placer.place(begun, replicas, now)
        return settled if all(len(settled.get(job_id, ())) == len(nodes) for job_id, nodes in given.items()) else given


class _Bounds(Struct, frozen=True, kw_only=True):
    """The bounds of one view."""

    view: ClusterState
    policy: Policy
    placer: Placer
    now: float

    def sizes(
        self, view: ClusterState, replicas: Mapping[str, int], placed: Placement
    ) -> Mapping[str, tuple[int, Reason]]:
        return sizes_within(view, replicas, placed, self.policy, self.now)

    def last_word(self, wanted: Mapping[str, int], placed: Placed) -> Placed:
        """Return the better of the new plan and the one in force: what one job left may be of use for a third."""
        new = filled(self.view, placed, self.policy, self.placer, self.now)
        if is_better(self.view, wanted, new.placement):
            return new
        return filled(self.view, in_force(self.view, wanted, new), self.policy, self.placer, self.now)
