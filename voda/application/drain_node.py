"""Drains a node until it is undrained: plans move its workers elsewhere, and bring no others there.

Rule: only what would take effect is recorded; who drained a node is named by the reason, and always by the event.
"""

from voda.application.journal import Journal, JournalView
from voda.auth.callers import Caller
from voda.domain.errors import NotFound
from voda.domain.reasons.requests import Requested
from voda.domain.state import ClusterState
from voda.events.types import NodeDrainRequested, NodeUndrainRequested


async def drain(journal: Journal, name: str, caller: Caller, *, reason: str = "") -> None:
    """Have the node's workers moved by the next plan; a node that is drained stays as it is.

    Raises:
        NotFound: no pool has the node.
    """
    if name not in state_with(journal.view, name).drains:
        fact = NodeDrainRequested(name=name, reason=Requested(by=caller.user or "nobody", text=reason))
        await journal.record(fact, actor=caller.user)


async def undrain(journal: Journal, name: str, caller: Caller) -> None:
    """Let plans put workers on the node again; one that voda does not drain stays as it is.

    Raises:
        NotFound: no pool has the node.
    """
    if name in state_with(journal.view, name).drains:
        await journal.record(NodeUndrainRequested(name=name), actor=caller.user)


def state_with(view: JournalView, name: str) -> ClusterState:
    """Return the state of the pool that has the node; raises NotFound."""
    live = view.cluster
    states = [live.state(pool) for pool in sorted(live.pools())]
    for state in states:
        if name in state.nodes:
            return state
    known = ", ".join(sorted(node for state in states for node in state.nodes)) or "none"
    raise NotFound(f"node {name[:80]!r} is not known. Known: {known[:400]}.")
