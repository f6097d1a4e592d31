"""Requests moves of restartable shares, so that whole cards become free; or says what such a request would do.

Rules: only what its user lets voda restart is moved; one request at a time is in force in a pool; the log has the plan
before anything moves.
"""

import asyncio
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from voda.application.backend import Backend
from voda.application.lookup import pool_state
from voda.auth.callers import Caller
from voda.domain.errors import VersionConflict, WrongState
from voda.domain.shares import Defragmentation
from voda.domain.state import ClusterState
from voda.events.types import DefragmentationRequested
from voda.manifests.programs import is_restartable
from voda.sharing.defragmentation import PlannedMoves, after_moves, plan_moves
from voda.sharing.fragment_report import FragmentReport, fragment_report
from voda.text import counted

_NAMED: Final = 3
"""Of the moves that are under way."""


class DefragmentationAnswer(Struct, frozen=True, kw_only=True):
    """What moves in a pool, and what of its cards is free before and after."""

    pool: str
    planned: PlannedMoves
    before: FragmentReport
    after: FragmentReport
    note: str
    """Why nothing moves, or would, one sentence; empty: something does."""
    is_under_way: bool = False
    """Whether an earlier request is in force, of which `note` tells; only a dry run says so."""


async def defragment(
    backend: Backend, pool: str, caller: Caller, *, most: int, is_dry_run: bool
) -> DefragmentationAnswer:
    """Request the moves that free most cards of a pool, `most` of them at the most; a dry run only says which.

    Raises:
        WrongState: an earlier request is still in force.
        ClusterUnavailable: the cluster has not been read yet.
    """
    state = pool_state(backend, pool)
    if under_way := _under_way(state.defragmentation, backend.clock.now()):
        if not is_dry_run:
            raise WrongState(f"pool {pool}: {under_way}; ask again then, or once they are done")
        report = await asyncio.to_thread(fragment_report, state)
        return DefragmentationAnswer(
            pool=pool, planned=PlannedMoves(), before=report, after=report, note=under_way, is_under_way=True
        )
    pods = backend.movable_pods() if backend.movable_pods is not None else _NO_PODS
    movable = {**_movable_jobs(state), **pods.nodes}
    # Cards that voda chooses for nobody stay as they are.
    answer = await asyncio.to_thread(_answer, state, movable, pods.closed, most)
    if answer.planned.moves and not is_dry_run:
        await _request(backend, state, answer.planned, caller)
    return answer


class MovablePods(Struct, frozen=True, kw_only=True):
    """Pods that may be moved."""

    nodes: Mapping[str, Collection[str]] = {}
    """By uid, the nodes that they may come to."""
    closed: Mapping[str, Collection[int]] = {}
    """Node -> cards that are left as they are."""


_NO_PODS = MovablePods()


def _movable_jobs(state: ClusterState) -> Mapping[str, Collection[str]]:
    """Return the jobs that may be moved; in a pool with virtual clusters a card that jobs share is one of their cells,
    which no request takes away.
    """
    if state.cells is not None:
        return {}
    nodes = [name for name, account in state.shares.items() if not account.is_claimed]
    return {
        job_id: nodes
        for job_id, job in state.jobs.items()
        if job.spec.share is not None
        and job.workers
        and not (job.is_canceling or job.is_halted)
        and is_restartable(job.spec.manifest)
    }


def _answer(
    state: ClusterState, movable: Mapping[str, Collection[str]], closed: Mapping[str, Collection[int]], most: int
) -> DefragmentationAnswer:
    accounts = {
        name: state.shares[name] for name in sorted(state.shares) if name in state.nodes and state.nodes[name].is_open
    }
    planned = plan_moves(accounts, movable, most=most, closed=closed)
    before = fragment_report(state)
    after = fragment_report(after_moves(state, planned)) if planned.moves else before
    note = "" if planned.moves else _why_none(state, planned, most)
    return DefragmentationAnswer(pool=state.pool, planned=planned, before=before, after=after, note=note)


def _why_none(state: ClusterState, planned: PlannedMoves, most: int) -> str:
    if not planned.shared:
        return "no card is shared on a node that pods may come to"
    if planned.fixed < planned.shared:
        others = planned.shared - planned.fixed
        return (
            f"what is on the {counted(others, 'shared card')} that could be emptied does not fit on other shared cards"
            f" by {counted(most, 'move')}"
        )
    if state.cells is not None:
        return (
            "the pool has virtual clusters: a card that jobs share is one of their cells, and its shares are not moved"
        )
    cards = "the one shared card" if planned.shared == 1 else f"each of the {planned.shared:,} shared cards"
    return (
        f"{cards} has a share that is not to be moved: of jobs, those that were not submitted with --restartable; of"
        " pods, those that claim no part of one card, without the annotation"
        ' voda.dev/restartable: "true", or without a controller that makes them anew'
    )


def _under_way(moves: Defragmentation | None, now: float) -> str:
    """Return which moves of a request in force are still to be made, and until when; empty: none is in force."""
    if moves is None or not moves.is_in_force(now):
        return ""
    left = [move for move in moves.moves if not moves.is_over(move, now)]
    done, ends_at = len(moves.moves) - len(left), datetime.fromtimestamp(moves.ends_at, UTC)
    which = [f"{move.pod} from {move.source} to {move.target}" for move in left[:_NAMED]]
    which += [f"{len(left) - _NAMED:,} more"] if len(left) > _NAMED else []
    return (
        f"moves are under way: of {counted(len(moves.moves), 'move')} requested by"
        f" {moves.requested_by or 'nobody in particular'}, {done:,} {'is' if done == 1 else 'are'} done; the rest,"
        f" until {ends_at:%H:%M:%S} UTC at the most: {', '.join(which)}"
    )


async def _request(backend: Backend, state: ClusterState, planned: PlannedMoves, caller: Caller) -> None:
    fact = DefragmentationRequested(pool=state.pool, moves=planned.moves, freed=planned.freed)
    version = state.defragmentation.version if state.defragmentation is not None else 0
    try:
        await backend.record(fact, actor=caller.user, version=version)
    except VersionConflict as error:
        raise WrongState(f"pool {state.pool}: another such request came first; look at it by voda events") from error
