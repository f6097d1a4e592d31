"""Applies cells and virtual clusters to a pool, or says what that would change.

Rules: they are checked against the nodes before anything is recorded. Jobs that run go on; where some would lose a
guarantee, it has to be said by `force`. Of two who change them at once, the second is refused.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from voda.application.journal import Journal
from voda.application.lookup import pool_state
from voda.cells.accounting import QuotaKey, quota_use
from voda.cells.book import CellBook
from voda.cells.pool_cells import declared_cells, open_pool
from voda.domain.cells import CellsSpec
from voda.domain.errors import InvalidField, InvalidInput, VersionConflict, WrongState
from voda.domain.state import ClusterState
from voda.events.types import VirtualClustersApplied
from voda.planner.virtual_clusters import book_of, guaranteed_workers
from voda.policies import POLICIES


class LostGuarantee(NamedTuple):
    """A job of which fewer workers are guaranteed; it goes on."""

    job_id: str
    before: int
    after: int


class ApplyOutcome(NamedTuple):
    """What changes, or would change."""

    cells: CellsSpec
    revision: int
    """How often virtual clusters were applied to the pool; of a dry run, without it."""
    is_applied: bool
    """False: a dry run, or nothing changes."""
    quotas: Mapping[QuotaKey, tuple[int, int]]
    """Cells before and after, where they differ."""
    downgraded: Sequence[LostGuarantee]
    absent_nodes: Sequence[str]
    """Declared, but not in the pool: until they join, their cells are bad."""
    other_sizes: Mapping[str, tuple[int, int]]
    """Node -> the GPUs that are declared there, and those that it has, where they differ."""


class ApplyOptions(Struct, frozen=True, kw_only=True):
    """How they are applied."""

    is_dry_run: bool = False
    force: bool = False
    """Whether jobs that run may lose their guarantee."""
    revision: int | None = None
    """The one that the caller has seen; None: whatever it is."""


async def apply_virtual_clusters(
    journal: Journal, pool: str, spec: CellsSpec, *, actor: str, options: ApplyOptions
) -> ApplyOutcome:
    """Record the cells and virtual clusters of a pool, in place of those before, and return once that is folded.

    Raises:
        InvalidInput: the cells are wrong, the quotas do not fit, or a policy is unknown.
        WrongState: jobs that run would lose their guarantee.
        VersionConflict: somebody else has changed them since the caller saw them.
        StoreUnavailable: the log does not answer.
    """
    # The head first: what it counts is at or before the position, and so in the view.
    head = await journal.store.head(f"cells.{pool}")
    await journal.catch_up()
    state = pool_state(journal.view, pool)
    if options.revision not in (None, state.cells_revision):
        raise _changed_meanwhile(pool, state.cells_revision)
    # A large pool takes a while, and others would wait.
    outcome = await asyncio.to_thread(_outcome, state, spec)
    if options.is_dry_run or outcome.cells == (state.cells or CellsSpec()):
        return outcome
    if outcome.downgraded and not options.force:
        jobs = ", ".join(each.job_id for each in outcome.downgraded[:5])
        more = f" and {len(outcome.downgraded) - 5} more" if len(outcome.downgraded) > 5 else ""
        raise WrongState(
            f"{jobs}{more} would lose guarantees for workers that run, which then go on only while GPUs are idle:"
            " see it with --dry-run (dry_run=true), and apply it with --force (force=true)"
        )
    fact = VirtualClustersApplied(pool=pool, cells=outcome.cells)
    try:
        await journal.record(fact, actor=actor, version=head.version)
    except VersionConflict as error:
        raise _changed_meanwhile(pool, pool_state(journal.view, pool).cells_revision) from error
    return outcome._replace(is_applied=True, revision=pool_state(journal.view, pool).cells_revision)


def _outcome(state: ClusterState, spec: CellsSpec) -> ApplyOutcome:
    for name, cluster in spec.virtual_clusters.items():
        _refuse_unknown_policy(name, cluster.policy)
    cells = declared_cells(spec, state.nodes.values()) if spec.virtual_clusters else CellsSpec()
    if cells.virtual_clusters:
        # Refuses what does not fit; a plan would leave it out.
        open_pool(cells, state.nodes.values())
    after = replace(state, cells=cells if cells.virtual_clusters else None)
    old, new = (book_of(view) if view.cells is not None else None for view in (state, after))
    declared = {} if new is None else {name: len(leafs) for name, leafs in new.topology.leafs_on.items()}
    there = {name: int(node.gpus) for name, node in state.nodes.items()}
    return ApplyOutcome(
        cells=cells,
        revision=state.cells_revision,
        is_applied=False,
        quotas=_changed_quotas(old, new),
        downgraded=_downgraded(state, after),
        absent_nodes=sorted(declared.keys() - there.keys()),
        other_sizes={
            name: (declared[name], there[name])
            for name in sorted(declared.keys() & there.keys())
            if declared[name] != there[name]
        },
    )


def _refuse_unknown_policy(name: str, policy: str) -> None:
    if policy:
        try:
            POLICIES.choose(policy)
        except InvalidInput as error:
            field = f"virtualClusters.{name}.policy"
            raise InvalidField(field, f"{field}: {error}") from error


def _changed_quotas(old: CellBook | None, new: CellBook | None) -> Mapping[QuotaKey, tuple[int, int]]:
    before, after = ({} if book is None else quota_use(book) for book in (old, new))
    counts = {
        key: tuple(uses[key].cells if key in uses else 0 for uses in (before, after))
        for key in sorted(before.keys() | after.keys())
    }
    return {key: (was, will_be) for key, (was, will_be) in counts.items() if was != will_be}


def _downgraded(state: ClusterState, after: ClusterState) -> Sequence[LostGuarantee]:
    before, left = guaranteed_workers(state), guaranteed_workers(after)
    lost = (LostGuarantee(job_id, workers, left.get(job_id, 0)) for job_id, workers in sorted(before.items()))
    return [each for each in lost if each.after < each.before]


def _changed_meanwhile(pool: str, revision: int) -> VersionConflict:
    return VersionConflict(
        f"the virtual clusters of pool {pool} were changed by somebody else, they are at revision {revision} now: get"
        " them again, and decide again"
    )
