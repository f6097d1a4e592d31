"""Drains a node until it is undrained: plans move its workers elsewhere, and bring no others there.

Rule: only what would take effect is recorded; who drained a node is named by the reason, and always by the event.
"""

from voda.application.backend import Backend
from voda.application.lookup import pool_names, pool_state
from voda.auth.callers import Caller
from voda.domain.errors import NotFound
from voda.domain.state import ClusterState
from voda.events.types import NodeDrainRequested, NodeUndrainRequested


async def drain(backend: Backend, name: str, caller: Caller, *, reason: str = "") -> None:
    """Have the node's workers moved by the next plan; a node that is drained stays as it is.

    Raises:
        NotFound: no pool has the node.
    """
    if name not in state_with(backend, name).drains:
        who = f"drained by {caller.user or 'nobody'}"
        fact = NodeDrainRequested(name=name, reason=f"{who}: {reason}" if reason else who)
        await backend.record(fact, actor=caller.user)


async def undrain(backend: Backend, name: str, caller: Caller) -> None:
    """Let plans put workers on the node again; one that voda does not drain stays as it is.

    Raises:
        NotFound: no pool has the node.
    """
    if name in state_with(backend, name).drains:
        await backend.record(NodeUndrainRequested(name=name), actor=caller.user)


def state_with(backend: Backend, name: str) -> ClusterState:
    """Return the state of the pool that has the node; raises NotFound."""
    states = [pool_state(backend, pool) for pool in pool_names(backend)]
    for state in states:
        if name in state.nodes:
            return state
    known = ", ".join(sorted(node for state in states for node in state.nodes)) or "none"
    raise NotFound(f"node {name[:80]!r} is not known. Known: {known[:400]}.")
