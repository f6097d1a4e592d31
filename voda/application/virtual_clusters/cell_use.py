"""What a pool's cells are used for: the plan in force as a book, for lists, dry runs and metrics."""

from collections.abc import Mapping

from voda.cells.book import CellBook
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.recovery import recover
from voda.planner.virtual_clusters.share_cards import with_share_cards


def book_of(state: ClusterState) -> CellBook:
    """Return the cells of a pool with virtual clusters, with what the plan in force uses of them."""
    return recover(with_share_cards(state).view, frozenset()).book


def guaranteed_workers(state: ClusterState) -> Mapping[str, int]:
    """Return how many workers of each job are guaranteed, where some are; none in a pool without virtual clusters."""
    if state.cells is None:
        return {}
    shares = with_share_cards(state)
    draft = recover(shares.view, frozenset())
    counts = {job_id: len(draft.guaranteed(job_id)) for job_id in draft.workers}
    # The minimum is one gang: the next plan guarantees all of it or nothing.
    sure = {job_id: count for job_id, count in counts.items() if count >= draft.view.jobs[job_id].spec.min_replicas}
    return shares.by_job(sure, owned=True)
