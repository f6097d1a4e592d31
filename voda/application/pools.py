"""Pools by name: those to which jobs can be submitted, and those that the log knows besides.

Rule: to ask is not to change: a pool that the log never mentioned is shown empty, and stays unmentioned.
"""

from collections.abc import Sequence
from difflib import get_close_matches

from voda.application.backend import Backend
from voda.domain.errors import NotFound
from voda.domain.plan import Plan
from voda.domain.state import ClusterState, Settings


def pool_names(backend: Backend) -> Sequence[str]:
    """Return all pools, sorted."""
    return sorted({*backend.pools, *backend.view.live.cluster.pools()})


def known_pool(backend: Backend, name: str) -> str:
    """Return the name of a pool.

    Raises:
        NotFound: there is no such pool; the message names those there are.
    """
    there_are = pool_names(backend)
    if name in there_are:
        return name
    close = get_close_matches(name, there_are, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise NotFound(f"pool {name[:80]!r} is not known.{hint} Known: {', '.join(there_are)}.")


def pool_state(backend: Backend, name: str) -> ClusterState:
    """Return what is live in a pool, without estimates. Costs O(live jobs)."""
    cluster = backend.view.live.cluster
    if name in cluster.pools():
        return cluster.state(name)
    return ClusterState(
        pool=name,
        position=cluster.position,
        jobs={},
        nodes={},
        plan=Plan(pool=name),
        estimates={},
        settings=Settings(),
    )
