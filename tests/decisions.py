"""Decisions with all wings, as the controller makes them, of pools without virtual clusters."""

from voda.domain.plan import Plan
from voda.domain.state import ClusterState
from voda.placement import Placer
from voda.planner import decide as core
from voda.planner.registries import all_wings
from voda.policies import Policy


def decide(view: ClusterState, policy: Policy, placer: Placer, now: float, *, cause: str) -> Plan:
    """Return the plan that follows the one in force."""
    return core.decide(view, policy, placer, now, cause=cause, wings=all_wings())
