"""Looks up pools by name: those that take jobs, and those that the log knows besides.

Rule: a lookup changes nothing: a pool that the log does not mention is empty, and stays unmentioned.
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
    """Return the name if there is such a pool.

    Raises:
        NotFound: there is none; the message names the pools that there are.
    """
    known = pool_names(backend)
    if name in known:
        return name
    close = get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise NotFound(f"pool {name[:80]!r} is not known.{hint} Known: {', '.join(known)}.")


def pool_state(backend: Backend, name: str) -> ClusterState:
    """Return the live state of a pool, without estimates; O(live jobs)."""
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
