"""What a pool's cells are used for: the plan in force as a book, for lists, dry runs and metrics."""

from collections.abc import Iterable, Mapping

from voda.cells.book import CellBook
from voda.domain.cells import CellsSpec
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.state import ClusterState
from voda.planner.candidates import Candidates
from voda.planner.gpuless.workers import without_gpus
from voda.planner.sharing import StandIns, with_stand_ins
from voda.planner.virtual_clusters.pool_jobs import most_workers, views_of
from voda.planner.virtual_clusters.recovery import recover
from voda.planner.virtual_clusters.unused_book import unused_book


def book_of(state: ClusterState) -> CellBook:
    """Return the cells of a pool with virtual clusters, with what the plan in force uses of them."""
    return recover(_stand_ins(state).candidates.view).book


def guaranteed_workers(state: ClusterState) -> Mapping[str, int]:
    """Return how many workers of each job are guaranteed, where some are; none in a pool without virtual clusters."""
    if state.cells is None:
        return {}
    shares = _stand_ins(state)
    draft = recover(shares.candidates.view)
    counts = {job_id: len(draft.guaranteed(job_id)) for job_id in draft.workers}
    # A size is one gang: the next plan guarantees all of it or nothing.
    jobs = draft.view.jobs
    sure = {name: size for name, count in counts.items() if (size := jobs[name].spec.size_within(count))}
    return shares.by_job(sure, owned=True)


def workers_in_quota(cells: CellsSpec, nodes: Iterable[Node], spec: JobSpec) -> int:
    """Return how many workers of a job the guarantee that it has a part in holds, were all of it free.

    It costs the same however many jobs there are.
    """
    quotas = unused_book(cells, nodes).quotas
    # A GPU of which jobs have parts is one of the quota.
    return most_workers(
        quotas, views_of(quotas, spec.virtual_cluster, spec.pinned_cell), spec.gpus_per_replica or Gpus(1)
    )


def _stand_ins(state: ClusterState) -> StandIns:
    return with_stand_ins(Candidates(view=without_gpus(state)[0]))
